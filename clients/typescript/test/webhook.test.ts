import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { BadKey, NotVerified, verify } from "../src/index.js";

interface Vector {
  name: string;
  why: string;
  headers: [string, string][];
  /** In base64. */
  body: string;
  keys: string[];
  now: number;
  tolerance: number;
  verified: boolean;
}

const VECTORS = JSON.parse(
  readFileSync(new URL("../../../vectors/signatures.json", import.meta.url), "utf8"),
) as Vector[];
const KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

for (const { name, why, headers, body, keys, now, tolerance, verified } of VECTORS) {
  test(`${name}: ${why}`, () => {
    const judge = () => verify(headers, Buffer.from(body, "base64"), keys, { tolerance, now: new Date(now * 1000) });
    if (verified) assert.deepEqual(judge(), { id: headers[0]![1], timestamp: new Date(Number(headers[1]![1]) * 1000) });
    else assert.throws(judge, NotVerified);
  });
}

test("a key that cannot be one is an error of who configures it", () => {
  for (const keys of [[], [""], ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], ["whsec_"], ["whsec_c2hvcnQ="], ["whsec_!".repeat(20)], [KEY, "x"]]) {
    assert.throws(() => verify({}, "", keys), BadKey, String(keys));
  }
});

test("headers are read as servers hand them on, over a real connection too", async () => {
  const at = Math.floor(Date.now() / 1000);
  const body = Buffer.from([0, 255, 10]);
  const key = Buffer.from(KEY.slice(6), "base64");
  const signature = `v1,${createHmac("sha256", key).update(`id.${at}.`).update(body).digest("base64")}`;
  const headers = { "Webhook-Id": "id", "Webhook-Timestamp": String(at), "Webhook-Signature": signature };
  assert.equal(verify(new Headers(headers), body, [KEY]).id, "id");
  assert.equal(verify(new Map(Object.entries(headers)), body, [KEY]).id, "id");

  const told: unknown[] = [];
  const server = createServer(async (incoming, answer) => {
    const chunks = await incoming.toArray();
    try {
      told.push(verify(incoming.headers, Buffer.concat(chunks as Buffer[]), [KEY]).id);
    } catch (error) {
      told.push(error);
    }
    answer.end();
  });
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  const { port } = server.address() as AddressInfo;
  const post = (headers: string[] | Record<string, string>) =>
    new Promise((done, failed) => {
      const sent = request({ port, host: "127.0.0.1", method: "POST", headers }, (answer) => answer.resume().on("end", done));
      sent.on("error", failed).end(body);
    });
  await post(headers);
  // Twice: Node joins them.
  await post([["Host", "here"], ...Object.entries(headers), ["Webhook-Signature", signature]].flat());
  server.close();
  assert.equal(told[0], "id");
  assert.ok(told[1] instanceof NotVerified, String(told[1]));
});
