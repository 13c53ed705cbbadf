import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import pg from "pg";

import { keepLedger, prepare, service } from "../example/bookings.js";
import { claim, register } from "../src/index.js";
import { migrated, pooled } from "./database.js";

const KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

test("the example books, and enters what is pushed to it once, whatever comes twice or from elsewhere", async () => {
  await books(new pg.Pool(await migrated("outlast")));
});

test("the example does the same through PgBouncer in transaction mode", async (t) => {
  const through = pooled(await migrated("outlast"));
  if (!through) return t.skip("PgBouncer is missing");
  await books(new pg.Pool(through));
});

async function books(pool: pg.Pool): Promise<void> {
  await prepare(pool);
  await register(pool, "ledger", ["booking.confirmed"]);
  const server = service(pool, [KEY]).listen(0, "127.0.0.1");
  await once(server, "listening");
  const post = async (path: string, body: string | Buffer, headers: Record<string, string>) => {
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`;
    const answer = await fetch(url, { method: "POST", body: new Uint8Array(Buffer.from(body)), headers });
    await answer.arrayBuffer();
    return [answer.status, answer.headers.get("outlast-outcome")];
  };
  const entries = async () => (await pool.query("select from ledger")).rowCount;

  for (const request of ["1", "1", "2"]) {
    assert.deepEqual(await post("/bookings", '{"guest":"Zoë"}', { "idempotency-key": request }), [201, null]);
  }
  assert.equal((await pool.query("select from outlast.event")).rowCount, 2);

  // As docs/push.md says.
  const [event] = await claim(pool, "ledger", { n: 1, holder: "push" });
  const { id, token, payload } = event!;
  const at = String(Math.floor(Date.now() / 1000));
  const mac = createHmac("sha256", Buffer.from(KEY.slice(6), "base64")).update(`${id}.${at}.`).update(payload).digest("base64");
  const headers = {
    "webhook-id": id, "webhook-timestamp": at, "webhook-signature": `v1,${mac}`, "outlast-token": token,
    "outlast-attempt": "1", "outlast-consumer": "ledger", "outlast-within-ms": "15000",
  };
  assert.deepEqual(await post("/push", Buffer.concat([payload, Buffer.from(" ")]), headers), [401, null]);
  assert.equal(await entries(), 0);
  assert.deepEqual(await post("/push", payload, headers), [202, "accepted"]);
  assert.deepEqual(await post("/push", payload, headers), [202, "accepted"]);
  assert.equal(await entries(), 1);

  // The other way: by claims.
  const stop = new AbortController();
  const kept = keepLedger(pool, stop.signal);
  const deadline = Date.now() + 30_000;
  while ((await entries()) !== 2) assert.ok(Date.now() < deadline, "the second booking is entered in time");
  stop.abort();
  await kept;
  server.close();
  await pool.end();
}
