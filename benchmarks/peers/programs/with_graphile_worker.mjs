// Graphile Worker: a local queue, completions in batches, as https://worker.graphile.org/docs/performance advises.
import { Logger, makeWorkerUtils, run, runMigrations, WorkerPreset } from "graphile-worker";
import { main, pieces, url } from "./common.mjs";

const PIECE = 5000;
const QUIET = new Logger(() => () => {});

const options = {
  logger: QUIET,
  preset: {
    extends: [WorkerPreset],
    worker: {
      connectionString: url,
      concurrentJobs: 24,
      maxPoolSize: 25,
      localQueue: { size: 1000 },
      completeJobBatchDelay: 5,
      failJobBatchDelay: 5,
    },
  },
};

let utils;

await main({
  async prepare() {
    await runMigrations(options);
  },
  async open() {
    utils = await makeWorkerUtils(options);
  },
  async addMany(payloads) {
    for (const piece of pieces(payloads, PIECE)) {
      await utils.addJobs(piece.map((payload) => ({ identifier: "noop", payload })));
    }
  },
  async addOne(payload) {
    await utils.addJob("noop", payload);
  },
  async work(handle) {
    await run({
      ...options,
      parsedCronItems: [],
      noHandleSignals: true,
      taskList: { noop: async (payload) => handle(payload.n) },
    });
  },
});
