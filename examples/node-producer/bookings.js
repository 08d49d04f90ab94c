// The slots of trucks: held, confirmed and shipped, each time in one transaction with the program's own table.

import { inTransaction } from "./transaction.js";

// A result of the business and no fault of the program: it says what to tell the customer.
export class Refusal extends Error {}

const MOST = 500; // rows of one statement

// The ORDER BY lets two imports at once wait for each other, instead of meeting in a deadlock.
const HOLD = `
  WITH held AS (
    INSERT INTO duehook.reservations (tenant, resource, expires_at, exclusive, data)
    SELECT $1, (asked ->> 'truck') || ' at ' || (asked ->> 'slot'), duehook.now() + make_interval(secs => $2), true, asked
      FROM json_array_elements($3::json) AS asked
     ORDER BY asked ->> 'truck', asked ->> 'slot'
    RETURNING id, expires_at, data
  ), booked AS (
    INSERT INTO trucks.bookings (reservation, truck, slot, customer)
    SELECT id, data ->> 'truck', (data ->> 'slot')::timestamptz, data ->> 'customer' FROM held
    RETURNING id, reservation
  )
  SELECT booked.id, reservation, expires_at FROM booked JOIN held ON held.id = reservation`;

const CONFIRM = `
  UPDATE duehook.reservations SET status = 'confirmed'
   WHERE tenant = $1 AND id IN (SELECT reservation FROM trucks.bookings WHERE id = ANY ($2::bigint[]))`;
const CONFIRMED = `
  UPDATE trucks.bookings SET confirmed_at = coalesce(confirmed_at, now()) WHERE id = ANY ($1::bigint[])`;

const SHIPPED = `
  UPDATE trucks.bookings SET shipped_at = coalesce(shipped_at, now()) WHERE id = $1 AND confirmed_at IS NOT NULL
  RETURNING truck, slot, customer, shipped_at`;
const TELL = `
  INSERT INTO duehook.events (tenant, type, key, data) VALUES ($1, 'booking.shipped', $2, $3)
  ON CONFLICT DO NOTHING`;

// Hold a slot for some seconds: `{id, reservation, expires_at}`. If it is not confirmed by then, duehook expires the
// reservation, frees the slot and tells the subscribers; nobody here has to remember it.
export async function book(pool, tenant, booking, seconds) {
  const [booked] = await refusing(() =>
    inTransaction(pool, (client) => hold(client, tenant, [booking], seconds)),
  );
  return booked;
}

// Confirm it, while there is time. Confirming twice is confirming once.
export async function confirm(pool, tenant, id) {
  await refusing(() => inTransaction(pool, (client) => confirmHeld(client, tenant, [id])));
}

// Tell the subscribers that it is on its way: once, however often it is asked for, because the event has a key.
export async function ship(pool, tenant, id) {
  return inTransaction(pool, async (client) => {
    const { rows } = await client.query(SHIPPED, [id]);
    if (rows.length === 0) throw new Refusal(`booking ${id} is not confirmed`);
    await client.query(TELL, [tenant, `booking-${id}-shipped`, JSON.stringify({ booking: id, ...rows[0] })]);
    return rows[0];
  });
}

// Book and confirm all of these, or none. The number of them.
export async function importAll(pool, tenant, bookings) {
  await refusing(() =>
    inTransaction(pool, async (client) => {
      for (let start = 0; start < bookings.length; start += MOST) {
        const booked = await hold(client, tenant, bookings.slice(start, start + MOST), 60);
        await confirmHeld(client, tenant, booked.map(({ id }) => id));
      }
    }),
  );
  return bookings.length;
}

async function hold(client, tenant, bookings, seconds) {
  const { rows } = await client.query(HOLD, [tenant, seconds, JSON.stringify(bookings)]);
  return rows;
}

async function confirmHeld(client, tenant, ids) {
  const { rowCount } = await client.query(CONFIRM, [tenant, ids]);
  if (rowCount !== ids.length) throw new Refusal("there is no such booking");
  await client.query(CONFIRMED, [ids]);
}

// The refusals of the database that are results; all others stay errors.
async function refusing(work) {
  try {
    return await work();
  } catch (error) {
    if (error.code === "DH001" || error.code === "DH002") throw new Refusal(`too late: ${error.message}`);
    if (error.code === "23505" && error.constraint === "reservations_exclusive") throw new Refusal("the slot is taken");
    throw error;
  }
}
