// The receiver's own database: its connections and tables.
import pg from "pg";

// Together shorter than the sender's deadline: whoever can't have the database in time says so by a 500.
export const pool = new pg.Pool({
  connectionString: process.env.DATABASE_URL,
  max: 10,
  connectionTimeoutMillis: 5_000,
  options: "-c lock_timeout=3s",
});

// A connection that the database cuts, idle or in use, is an event; one that nobody listens to ends the process.
pool.on("error", report);
pool.on("connect", (client) => client.on("error", report));

function report(error) {
  console.error(`a connection to the database was lost: ${error.message}`);
}

/** A repeat changes nothing, and two at once do not get in each other's way. */
export async function createTables() {
  // The receipts are as app.receiver makes them, so either may go on with what the other has received. No unique key on
  // order_key: an order that ships twice has to show.
  await pool.query(`
    BEGIN;
    SELECT pg_advisory_xact_lock(hashtext('create tables'));
    CREATE TABLE IF NOT EXISTS duehook_receipts (
      webhook_id text PRIMARY KEY, received_at double precision NOT NULL, outcome text);
    CREATE INDEX IF NOT EXISTS duehook_receipts_age ON duehook_receipts (received_at);
    CREATE TABLE IF NOT EXISTS shipments (id bigserial PRIMARY KEY, order_key text NOT NULL);
    COMMIT`);
}
