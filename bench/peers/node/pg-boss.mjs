// Webhooks by pg-boss, in PostgreSQL.
//
// - Batches, each job of them settled by itself (`perJobResults`), fetched without a pause as long as they are full
//   (`burstWhenBatchFull`), several at once (`localConcurrency`): "Workers" of its documentation. With the defaults a
//   worker takes one job every two seconds. A batch waits for its slowest job. Four of 100 were faster here than two of
//   100 or 250, or eight of 50.
// - Workers are woken by NOTIFY rather than by polling (`useListenNotify`, `notify`).
// - `insert`, one statement for all. `retryBackoff` for retries; `expireInSeconds`, after which a dead worker's jobs are
//   tried again, is well above a request's time limit instead of a quarter of an hour.

import { PgBoss } from "pg-boss";
import { main, onTermination, post, produce } from "./webhook.mjs";

const QUEUE = "webhooks";

async function started(options) {
  const boss = new PgBoss({ connectionString: process.env.BENCH_DATABASE_URL, ...options });
  boss.on("error", console.error);
  return boss.start();
}

async function prepare() {
  const boss = await started();
  const retries = { retryLimit: 12, retryDelay: 5, retryBackoff: true };
  await boss.createQueue(QUEUE, { ...retries, expireInSeconds: 60, notify: true });
  await boss.stop();
}

async function settled(job) {
  try {
    await post(job.data);
    return { id: job.id, status: "completed" };
  } catch (error) {
    return { id: job.id, status: "failed", output: { message: error.message } };
  }
}

async function work() {
  const boss = await started({ useListenNotify: true });
  const options = { batchSize: 100, localConcurrency: 4, perJobResults: true, burstWhenBatchFull: true };
  await boss.work(QUEUE, options, (jobs) => Promise.all(jobs.map(settled)));
  onTermination(() => boss.stop());
}

async function produceJobs() {
  const boss = await started();
  await produce((jobs) => boss.insert(QUEUE, jobs.map((data) => ({ data }))));
  await boss.stop();
}

await main({ prepare, work, produce: produceJobs });
