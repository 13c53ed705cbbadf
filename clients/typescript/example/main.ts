/** Runs the service: DATABASE_URL, PORT (0: any), and PUSH_KEYS (with a space between) if Outlast pushes to it. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";

import pg from "pg";

import { keepLedger, prepare, service } from "./bookings.js";

const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] });
// A connection that breaks while nobody uses it: the pool makes another one.
pool.on("error", (error) => console.error(error.message));
const keys = (process.env["PUSH_KEYS"] ?? "").split(" ").filter(Boolean);
const stop = new AbortController();

await prepare(pool);
const server = service(pool, keys);
server.listen(Number(process.env["PORT"] ?? 8080), "127.0.0.1", () => {
  console.log(`listening on ${(server.address() as AddressInfo).port}`);
});
const closed = once(server, "close");
process.once("SIGTERM", () => {
  stop.abort();
  server.close();
});
if (keys.length === 0) await keepLedger(pool, stop.signal);
await closed;
await pool.end();
