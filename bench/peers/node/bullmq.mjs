// Webhooks by BullMQ, in Redis.
//
// - `concurrency: 200` in each worker, and a worker per core: the guide's "Parallelism and Concurrency" calls 100 to 300
//   standard for jobs that wait for the network. Of 25, 50, 100 and 200 the last was the fastest here.
// - `addBulk`: the guide's "Adding jobs in bulk".
// - `attempts` with exponential backoff: "Retrying failing jobs". `removeOnComplete`: "Going to production" advises not
//   to keep every completed job.
// - Redis with an append-only file, written through once a second, and `noeviction`: "Going to production".
// - `maxRetriesPerRequest: null` and a listener for errors, for workers: the same page.

import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import { main, onTermination, post, produce } from "./webhook.mjs";

const connection = new Redis(process.env.BENCH_REDIS_URL, { maxRetriesPerRequest: null });

function work() {
  const worker = new Worker("webhooks", (job) => post(job.data), { connection, concurrency: 200 });
  worker.on("error", console.error);
  onTermination(() => worker.close());
}

async function enqueue(jobs) {
  await queue.addBulk(jobs.map((job) => ({ name: "deliver", data: job })));
}

const queue = new Queue("webhooks", {
  connection,
  defaultJobOptions: {
    attempts: 12,
    backoff: { type: "exponential", delay: 5_000 },
    removeOnComplete: true,
  },
});
queue.on("error", console.error);

await main({ work, produce: () => produce(enqueue) });
