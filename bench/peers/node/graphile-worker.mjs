// Webhooks by graphile-worker, in PostgreSQL.
//
// - `concurrentJobs: 24`, `maxPoolSize: 25` and a local queue of 500: the configuration by which its page "Performance"
//   measures; a worker per core. Completions and failures are noted in batches, every 250 ms at the latest: that page's
//   default for all users, and faster here than 0 or 25.
// - `addJobs`, one statement for all.
// - Retries with exponential backoff are its own.

import { makeWorkerUtils, run, runMigrations } from "graphile-worker";
import { main, post, produce } from "./webhook.mjs";

const connectionString = process.env.BENCH_DATABASE_URL;

async function prepare() {
  await runMigrations({ connectionString });
}

async function work() {
  const preset = {
    worker: {
      connectionString,
      concurrentJobs: 24,
      maxPoolSize: 25,
      localQueue: { size: 500 },
      completeJobBatchDelay: 250,
      failJobBatchDelay: 250,
    },
  };
  const runner = await run({ preset, taskList: { deliver: (job) => post(job) } }); // it ends in order by itself
  await runner.promise;
}

async function produceJobs() {
  const utils = await makeWorkerUtils({ connectionString });
  await produce((jobs) =>
    utils.addJobs(jobs.map((job) => ({ identifier: "deliver", payload: job, maxAttempts: 12 }))),
  );
  await utils.release();
}

await main({ prepare, work, produce: produceJobs });
