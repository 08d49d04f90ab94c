// Verifies requests by the `Webhook` of the package that the last argument names: cases as JSON on standard input, a
// verdict for each on standard output, "verified" or the name of the error.
import { readFileSync } from "node:fs";

const { Webhook } = await import(process.argv.at(-1));

function verdict({ secret, headers, body }) {
  try {
    new Webhook(secret).verify(Buffer.from(body, "base64"), headers);
    return "verified";
  } catch (error) {
    return error.name;
  }
}

console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(verdict)));
