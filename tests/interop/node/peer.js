// BullMQ as a test asks for it: node peer.js BULLMQ_MODULE PORT DB. Reads lines {"n":1,"js":"return ..."}: the body of an
// asynchronous function, run with what is set up here, and answers {"n":1,"value":...} or {"n":1,"error":"..."}.
const readline = require('readline');
const [, , library, port, db] = process.argv;
const bullmq = require(library);
const Redis = require('ioredis');
const connection = { host: '127.0.0.1', port: Number(port), db: Number(db), maxRetriesPerRequest: null };
const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;
const queues = {}, kept = {}, open = [];

// The queue of that name, made once.
const queue = (name, options) => (queues[name] ??= keep(new bullmq.Queue(name, { connection, ...options })));
function keep(thing) {
  thing.on?.('error', () => {});
  open.push(thing);
  return thing;
}
// A worker whose handler does what the data ask for; it notes what it ran.
const ran = [];
const worker = (name, options, handler) =>
  keep(
    new bullmq.Worker(
      name,
      handler ??
        (async (job) => {
          ran.push({ id: job.id, name: job.name, data: job.data, made: job.attemptsMade });
          const want = job.data?.data ?? {};
          if (want.sleep) await new Promise((go) => setTimeout(go, want.sleep));
          if (want.fail > job.attemptsMade) throw new Error(want.message ?? 'asked to');
          return want.result ?? null;
        }),
      { connection, ...options },
    ),
  );
// Everything that QueueEvents tells, in order.
const events = async (name) => {
  const seen = [];
  const stream = keep(new bullmq.QueueEvents(name, { connection }));
  for (const event of ['added', 'waiting', 'active', 'completed', 'failed', 'delayed', 'stalled', 'drained', 'removed',
    'duplicated', 'deduplicated', 'retries-exhausted', 'paused', 'resumed'])
    stream.on(event, (of) => seen.push({ event, ...of }));
  await stream.waitUntilReady();
  return seen;
};
const tools = { bullmq, Redis, connection, queue, worker, events, ran, kept, keep };

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
  const { n, js } = JSON.parse(line);
  try {
    const value = await new AsyncFunction(...Object.keys(tools), js)(...Object.values(tools));
    process.stdout.write(JSON.stringify({ n, value: value ?? null }) + '\n');
  } catch (error) {
    process.stdout.write(JSON.stringify({ n, error: String(error?.stack ?? error) }) + '\n');
  }
}).on('close', async () => {
  await Promise.race([Promise.allSettled(open.map((thing) => thing.close())), new Promise((go) => setTimeout(go, 5000))]);
  process.exit(0);
});
