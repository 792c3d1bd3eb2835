// The library of Node.js at its work: node node.js add|add-bulk|work PORT SIZE COUNT [CONCURRENCY]. Prints jobs a second.
// `add` has so many calls in flight as CONCURRENCY says; `work` finds the jobs there.
const [, , what, port, size, count, concurrency = '1'] = process.argv;
const { Queue, Worker } = require('bullmq');
const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null };
const total = Number(count);
const data = {
  job: 'urn:babel:orders:created', trace_id: '00000000-0000-4000-8000-000000000000',
  data: { text: 'x'.repeat(Math.max(10, Number(size) - 240)) },
  meta: { id: '00000000-0000-4000-8000-000000000001', queue: 'bench', lang: 'node', schema_version: 1, created_at: 1700000000000 },
  attempts: 0,
};
const say = (start) => console.log(Math.round(total / ((performance.now() - start) / 1000)));

async function add() {
  const queue = new Queue('bench', { connection });
  await queue.waitUntilReady();
  const start = performance.now();
  if (what === 'add-bulk') {
    for (let at = 0; at < total; at += 100)
      await queue.addBulk(Array.from({ length: Math.min(100, total - at) }, () => ({ name: data.job, data })));
  } else {
    let left = total;
    await Promise.all(Array.from({ length: Number(concurrency) }, async () => {
      while (left-- > 0) await queue.add(data.job, data);
    }));
  }
  say(start);
  await queue.close();
}

async function work() {
  let done = 0, start = 0;
  const worker = new Worker('bench', async () => null, { connection, concurrency: Number(concurrency), autorun: false });
  await worker.waitUntilReady();
  await new Promise((finished) => {
    worker.on('completed', () => { if (++done === total) finished(); });
    start = performance.now();
    worker.run();
  });
  say(start);
  await worker.close(true);
}

(what === 'work' ? work() : add()).then(() => process.exit(0));
