// pg-boss: four workers that fetch and complete batches. They continue at once after a full batch, and use LISTEN/NOTIFY.
import { PgBoss } from "pg-boss";
import { main, pieces, url } from "./common.mjs";

const QUEUE = "noop";
const PIECE = 5000;

// One queue, no schedules: the options switch off all maintenance that can be switched off.
const boss = new PgBoss({ connectionString: url, useListenNotify: true, schedule: false, supervise: false });
boss.on("error", console.error);

await main({
  async prepare() {
    await boss.start();
    await boss.createQueue(QUEUE, { notify: true });
  },
  async open() {
    await boss.start();
  },
  async addMany(payloads) {
    for (const piece of pieces(payloads, PIECE)) {
      await boss.insert(QUEUE, piece.map((data) => ({ data })));
    }
  },
  async addOne(payload) {
    await boss.send(QUEUE, payload);
  },
  async work(handle) {
    await boss.start();
    const options = { batchSize: 500, localConcurrency: 4, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
    await boss.work(QUEUE, options, async (jobs) => {
      for (const job of jobs) handle(job.data.n);
    });
  },
});
