// The command line. DATABASE_URL is the program's own role; TENANT is whose slots they are.

import { text } from "node:stream/consumers";
import pg from "pg";
import { Refusal, book, confirm, importAll, ship } from "./bookings.js";

const USAGE = `usage: node truck-slots.js book TRUCK SLOT CUSTOMER [SECONDS]
       node truck-slots.js confirm|ship BOOKING
       node truck-slots.js import < BOOKINGS    one JSON object in each line: {"truck", "slot", "customer"}`;

const TENANT = process.env.TENANT ?? "default";

const COMMANDS = {
  book: (pool, truck, slot, customer, seconds = "900") =>
    book(pool, TENANT, asked({ truck, slot, customer }), Number(seconds)),
  confirm: async (pool, id) => {
    await confirm(pool, TENANT, id);
    return { confirmed: id };
  },
  ship: (pool, id) => ship(pool, TENANT, id),
  import: async (pool) => {
    const lines = (await text(process.stdin)).split("\n").filter((line) => line.trim());
    return { imported: await importAll(pool, TENANT, lines.map((line) => asked(JSON.parse(line)))) };
  },
};

// One spelling for each moment: the slot is part of what is held, and must be the same for everybody.
function asked({ truck, slot, customer }) {
  const at = new Date(slot);
  if (Number.isNaN(at.valueOf())) throw new Refusal(`${slot} is not a time, such as 2030-05-01T08:00Z`);
  return { truck, slot: at.toISOString(), customer };
}

const [name, ...parameters] = process.argv.slice(2);
if (!Object.hasOwn(COMMANDS, name ?? "")) {
  console.error(USAGE);
  process.exit(2);
}
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 1, application_name: "truck slots" });
try {
  console.log(JSON.stringify(await COMMANDS[name](pool, ...parameters)));
} catch (error) {
  console.error(error instanceof Refusal ? error.message : error);
  process.exitCode = error instanceof Refusal ? 1 : 70;
} finally {
  await pool.end();
}
