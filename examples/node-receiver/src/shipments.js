// What an event does here.

const SHIP = "INSERT INTO shipments (order_key) VALUES ($1) RETURNING id";

/**
 * Ships an order that was placed; resolves to what a duplicate is answered with. It does all that it does through
 * `client` and never commits: `receive` does.
 */
export async function ship(client, { body }) {
  const { id, type, key } = JSON.parse(body);
  if (type !== "order.placed") return null; // a ping, or a type that this code does not know yet
  const { rows } = await client.query(SHIP, [key ?? id]);
  return { shipment: Number(rows[0].id) };
}
