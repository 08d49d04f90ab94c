// What the peers that are written for Node.js share: jobs of 1 KB, signed requests over connections that are kept, and
// a producer that waits for orders. A job holds everything but the endpoint's URL and secret, which each process has
// in memory: no peer asks a database for them, as an application would have to.

import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Agent, request } from "undici";

const BODY_BYTES = 1024;
const TIMEOUT = 15_000; // of a request
const endpoints = JSON.parse(readFileSync(process.env.BENCH_ENDPOINTS)).map(({ url, secret }) => ({
  url,
  key: Buffer.from(secret.replace(/^whsec_/, ""), "base64"),
}));

// undici's client, the fastest that Node.js has: its `request` costs about half of `fetch`, which stands on it. An
// agent keeps connections, as many to each origin as requests are under way.
const dispatcher = new Agent({ headersTimeout: TIMEOUT, bodyTimeout: TIMEOUT });

/** URL, body, and the headers of Standard Webhooks 1.0.0, signed now. */
export function signed({ id, endpoint, body }) {
  const { url, key } = endpoints[endpoint];
  const seconds = String(Math.floor(Date.now() / 1000));
  const signature = createHmac("sha256", key).update(`${id}.${seconds}.${body}`).digest("base64");
  const headers = {
    "content-type": "application/json",
    "webhook-id": id,
    "webhook-timestamp": seconds,
    "webhook-signature": `v1,${signature}`,
  };
  return { url, body, headers };
}

/** Post it once; throws for whatever is no 2xx. */
export async function post(job) {
  const { url, body, headers } = signed(job);
  const answer = await request(url, { method: "POST", body, headers, dispatcher });
  await answer.body.dump(); // or the connection is not free for the next
  if (answer.statusCode < 200 || answer.statusCode > 299) throw new Error(`answered ${answer.statusCode}`);
}

/** So many jobs, to the endpoints in turn, each with a body of exactly 1 KB. */
export function jobs(prefix, number) {
  return Array.from({ length: number }, (_, place) => {
    const id = `${prefix}${place}`;
    const endpoint = place % endpoints.length;
    const head = `{"id":"${id}","type":"order.placed.${endpoint}","data":{"order":1,"note":"`;
    return { id, endpoint, body: `${head}${"x".repeat(BODY_BYTES - head.length - 3)}"}}` };
  });
}

/** For each line `PREFIX NUMBER` on standard input hand in so many jobs, and say when they are safe. */
export async function produce(enqueue) {
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    const [prefix, number] = line.split(" ");
    await enqueue(jobs(prefix, Number(number)));
    console.log("done");
  }
}

/** Run what the command line names, of these functions. */
export async function main(functions) {
  await functions[process.argv[2]]();
}

/** Let what is under way end before the process does. */
export function onTermination(close) {
  process.once("SIGTERM", async () => {
    await close();
    process.exit(0);
  });
}
