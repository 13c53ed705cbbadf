import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { STATES, translate } from "../src/errors.js";
import { OutlastError } from "../src/index.js";

const ROOT = new URL("../../../../", import.meta.url);

test("every SQLSTATE that the schema raises has its class, and every code its page", () => {
  const raised = new Set<string>();
  for (const folder of ["functions", "migrations"]) {
    const path = new URL(`crates/outlast-postgres/${folder}/`, ROOT);
    for (const file of readdirSync(path).filter((name) => name.endsWith(".sql"))) {
      for (const [, state] of readFileSync(new URL(file, path), "utf8").matchAll(/errcode = '(OL\d{3})'/g)) raised.add(state!);
    }
  }
  assert.ok(raised.size > 10, "they are found");
  assert.deepEqual([...raised].filter((state) => !(state in STATES)), []);
  for (const [made, code] of Object.values(STATES)) {
    if (code) assert.match(readFileSync(new URL(`docs/errors/${code}.md`, ROOT), "utf8"), new RegExp(`^# ${code}: `), made.name);
  }
});

test("a state of ours that is newer than this package is still an error of ours, and another's stays as it was", () => {
  const newer = translate(Object.assign(new Error("why"), { code: "OL099", hint: "do this" }));
  assert.ok(newer instanceof OutlastError);
  assert.deepEqual([newer.state, newer.message], ["OL099", "why; do this"]);
  for (const error of [Object.assign(new Error(), { code: "40001" }), Object.assign(new Error(), { code: "ECONNRESET" }), 7]) {
    assert.equal(translate(error), error);
  }
});
