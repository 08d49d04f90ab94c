// HTTP: what a request is answered. `node src/server.js` listens on PORT (9000).
import express from "express";

import { createTables, pool } from "./database.js";
import { receive } from "./receipts.js";
import { ship } from "./shipments.js";
import { UnverifiedError, verifier } from "./verify.js";

const verify = verifier(process.env.WEBHOOK_SECRETS ?? "");
const app = express();

// The bytes as they came, whatever they call themselves: JSON that was parsed and written anew has another signature.
// The sender allows 1 MiB of data; Express would refuse more than 100 KB.
const bytes = express.raw({ type: () => true, limit: "2mb", inflate: false });

app.post("/hooks", bytes, async (request, response) => {
  const event = verify(request.body ?? Buffer.alloc(0), request.headers);
  response.json(await receive(pool, event, ship)); // after the commit
});

// 401 for what is not verified; what the body parser refuses has its own status. The rest has left nothing behind: a
// 500, and the event comes again.
app.use((error, _request, response, _next) => {
  const status = error instanceof UnverifiedError ? 401 : (error.status ?? 500);
  if (status >= 500) console.error(error);
  response.status(status).json({ detail: status >= 500 ? "failed" : error.message });
});

await createTables();
const server = app.listen(Number(process.env.PORT ?? 9000), "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(`listening on http://127.0.0.1:${server.address().port}/hooks`);
});

// Answer what has begun, then go.
process.once("SIGTERM", () => server.close(() => pool.end()));
