import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Unreadable, attempt, envelope } from "../src/index.js";

interface Vector {
  name: string;
  attributes: [string, string][];
  envelope: Record<string, any>;
}

/** Written by the Rust that writes them on the wire; see crates/outlast-core/tests/clients.rs. */
const VECTORS = JSON.parse(readFileSync(new URL("../../../vectors/envelopes.json", import.meta.url), "utf8")) as Vector[];

for (const { name, attributes, envelope: e } of VECTORS) {
  test(`the envelope ${name} comes back as it was, whatever became of the case of its names`, () => {
    const int = (text: string | null) => (text === null ? null : BigInt(text));
    const micros = BigInt(e["emitted_at_micros"]);
    const expected = {
      id: e["id"], type: e["type"], version: e["version"], tenant: e["tenant"], key: e["key"], keySeq: int(e["key_seq"]),
      aggregateVersion: int(e["aggregate_version"]), source: e["source"], subject: e["subject"], actor: e["actor"],
      correlationId: e["correlation_id"], causationId: e["causation_id"], traceparent: e["traceparent"], headers: e["headers"],
      contentType: e["content_type"], codecKey: e["codec_key"], emittedAt: new Date(Number(micros / 1000n)),
      log: e["log"] && { log: e["log"].log, id: BigInt(e["log"].id) },
    };
    const upper = attributes.map(([name, value]): [string, string] => [name.toUpperCase(), value]);
    for (const headers of [attributes, upper, new Headers(attributes), Object.fromEntries(attributes)]) {
      const { time, ...read } = envelope(headers);
      assert.deepEqual(read, expected);
      assert.equal(time, attributes.find(([name]) => name === "ce-time")![1]);
    }
  });
}

test("what is not ours or broken is told by name, and what is another's is passed over", () => {
  const good = VECTORS.find(({ name }) => name === "whole")!.attributes;
  const having = (name: string, value?: string) => {
    const others = good.filter(([known]) => known !== name);
    return envelope(value === undefined ? others : [...others, [name, value]]);
  };
  for (const name of ["ce-specversion", "ce-id", "ce-type", "ce-time"]) {
    assert.throws(() => having(name), new Unreadable(`the attribute ${name} is missing`));
  }
  const broken: [string, string][] = [
    ["ce-specversion", "0.3"], ["ce-id", "7"], ["ce-time", "yesterday"], ["ce-time", "2026-13-01T00:00:00Z"],
    ["outlast-version", "70000"], ["outlast-version", ""], ["outlast-key-seq", "9223372036854775808"], ["outlast-key", "%f"],
    ["outlast-key", "%FF"], ["outlast-key", "%ED%A0%80"], ["outlast-log", "prod"], ["outlast-log", "prod:x"],
    ["outlast-causation-id", "x"],
  ];
  for (const [name, value] of broken) {
    assert.throws(() => having(name, value), (error) => error instanceof Unreadable && error.message.includes(name), value);
  }
  assert.equal(having("x-other", "100%").type, "booking.confirmed/v2");
  assert.equal(having("traceparent", "nonsense").traceparent, null);
  assert.equal(having("content-type").contentType, "application/json");
});

test("a push says which try it is", () => {
  const token = randomUUID();
  const headers = {
    "outlast-token": token.toUpperCase(), "outlast-attempt": "2", "outlast-consumer": "mail", "outlast-within-ms": "14000",
  };
  assert.deepEqual(attempt(headers), { token, number: 2, consumer: "mail", withinMs: 14_000 });
  assert.throws(() => attempt({ ...headers, "outlast-token": "7" }), Unreadable);
  assert.throws(() => attempt({ "outlast-token": token }), new Unreadable("the attribute outlast-attempt is missing"));
});
