// One transaction, whole again when PostgreSQL asks for it.

const AGAIN = new Set(["40001", "40P01"]); // serialization failure, deadlock: nothing has happened, and nobody is to blame
const TRIES = 5;

// What `work(client)` returns, after the COMMIT. Whatever it throws undoes all of it. `work` may run more than once, so
// it must do nothing that leaves the transaction.
export async function inTransaction(pool, work) {
  for (let left = TRIES; ; left--) {
    const client = await pool.connect();
    let lost;
    try {
      await client.query("BEGIN");
      const result = await work(client);
      await client.query("COMMIT");
      return result;
    } catch (error) {
      await client.query("ROLLBACK").catch((failure) => (lost = failure));
      if (!AGAIN.has(error.code) || left === 1) throw error;
    } finally {
      client.release(lost); // a connection that could not roll back is closed, and not used again
    }
  }
}
