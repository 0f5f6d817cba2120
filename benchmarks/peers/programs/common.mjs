// The common part of the Node programs: the same commands and the same definition of each figure as in common.py.

const WARM_UP = 20; // the first jobs, which are not measured
const PAUSE_MS = 5;

export const url = process.env.DATABASE_URL;

const payload = (n) => ({ userId: "u-123", text: "hello world", n });
const say = (figures) => process.stdout.write(JSON.stringify(figures) + "\n");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Date.now() has milliseconds only. A double cannot hold all nanoseconds since 1970: the error is below 1 µs.
const nowNs = () => Math.round((performance.timeOrigin + performance.now()) * 1e6);

const cpuSeconds = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};

const commands = {
  async prepare(peer) {
    await peer.prepare();
  },

  async "enqueue-bulk"(peer, count) {
    await peer.open();
    const payloads = Array.from({ length: count }, (_, n) => payload(n));
    const began = performance.now();
    await peer.addMany(payloads);
    say({ seconds: (performance.now() - began) / 1000 });
  },

  async "enqueue-single"(peer, count) {
    await peer.open();
    for (let i = 0; i < WARM_UP; i++) await peer.addOne(payload(-1));
    const began = performance.now();
    for (let n = 0; n < count; n++) await peer.addOne(payload(n));
    say({ seconds: (performance.now() - began) / 1000 });
  },

  async drain(peer, count) {
    let done = 0;
    let cpu = 0;
    await peer.work(() => {
      if (!done) {
        say({ first_ns: nowNs() });
        cpu = cpuSeconds();
      }
      done += 1;
      if (done === count) say({ cpu_seconds: cpuSeconds() - cpu });
    });
    await new Promise(() => {});
  },

  async "latency-work"(peer, count) {
    const started = new Map();
    await peer.work((n) => {
      const now = nowNs();
      if (n < 0 || started.has(n)) return;
      started.set(n, now);
      if (started.size === count) {
        say({ started_ns: Array.from({ length: count }, (_, n) => started.get(n)) });
      }
    });
    await new Promise(() => {});
  },

  async "latency-send"(peer, count) {
    await peer.open();
    const sent = [];
    for (let n = -WARM_UP; n < count; n++) {
      await pause(PAUSE_MS);
      const now = nowNs();
      await peer.addOne(payload(n));
      if (n >= 0) sent.push(now);
    }
    say({ sent_ns: sent });
  },
};

export function* pieces(items, size) {
  for (let start = 0; start < items.length; start += size) yield items.slice(start, start + size);
}

export async function main(peer) {
  const [command, count] = process.argv.slice(2);
  try {
    await commands[command](peer, Number(count ?? 0));
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
  process.exit(0); // pools would keep the process alive
}
