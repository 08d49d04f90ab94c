// An event's effect and the proof that it happened, in one transaction.

const RESERVE = `
  INSERT INTO duehook_receipts (webhook_id, received_at) VALUES ($1, extract(epoch FROM clock_timestamp()))
  ON CONFLICT DO NOTHING`;
const FIRST = "SELECT outcome FROM duehook_receipts WHERE webhook_id = $1";
const KEEP = "UPDATE duehook_receipts SET outcome = $2 WHERE webhook_id = $1";

/**
 * Calls `apply(client, event)` unless the event was applied before; resolves to `{ outcome, duplicate }`, where the
 * outcome is what `apply` returned when it was applied. Of two at once the second waits for the first; if that fails,
 * the second applies. What it rejects with has left neither effect nor receipt.
 */
export async function receive(pool, event, apply) {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    const result = await applyOnce(client, event, apply);
    await client.query("COMMIT");
    client.release();
    return result;
  } catch (error) {
    client.release(error); // closes the connection, and with it the transaction
    throw error;
  }
}

async function applyOnce(client, event, apply) {
  // Inserted before the effect: whoever looks first and inserts later lets two at once through.
  const reserved = await client.query(RESERVE, [event.id]);
  if (reserved.rowCount === 0) return { outcome: await firstOutcome(client, event.id), duplicate: true };
  const outcome = (await apply(client, event)) ?? null;
  await client.query(KEEP, [event.id, JSON.stringify(outcome)]);
  return { outcome, duplicate: false };
}

async function firstOutcome(client, id) {
  const { rows } = await client.query(FIRST, [id]);
  if (rows.length === 0) throw new Error("the receipt was pruned at this very moment: let the event come again");
  return JSON.parse(rows[0].outcome);
}
