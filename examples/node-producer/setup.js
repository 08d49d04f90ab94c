// Makes the program's role, schema and table, as the administrator of ADMIN_URL; prints the DATABASE_URL of the role.
// May be run again: it keeps what is there and gives the role a new password.
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import pg from "pg";

const ROLE = "truck_slots";
const url = new URL(process.env.ADMIN_URL);
const password = randomBytes(24).toString("hex");

const administrator = new pg.Client({ connectionString: url.href });
await administrator.connect();
try {
  const { rowCount } = await administrator.query("SELECT FROM pg_roles WHERE rolname = $1", [ROLE]);
  await administrator.query(`${rowCount ? "ALTER" : "CREATE"} ROLE ${ROLE} LOGIN PASSWORD '${password}'`);
  await administrator.query(await readFile(new URL("schema.sql", import.meta.url), "utf8"));
} finally {
  await administrator.end();
}

url.username = ROLE;
url.password = password;
console.log(url.href);
