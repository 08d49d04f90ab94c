// Deletes receipts that are older than 30 days, in small transactions; run it daily. What comes again after that is
// applied again: a delivery gives up after DUEHOOK_MAX_AGE_SECONDS (5 days), but redrives and replays may be later.
import { pool } from "./database.js";

const PRUNE = `
  DELETE FROM duehook_receipts WHERE webhook_id IN (
    SELECT webhook_id FROM duehook_receipts WHERE received_at < extract(epoch FROM now() - interval '30 days')
     ORDER BY received_at LIMIT 1000)`;

let deleted = 0;
for (let some; some !== 0; deleted += some) some = (await pool.query(PRUNE)).rowCount;
console.log(`${deleted} receipts deleted`);
await pool.end();
