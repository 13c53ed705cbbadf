import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { promisify } from "node:util";

import { migrated } from "./database.js";

const PACKAGE = new URL("../../", import.meta.url);

test("the code of the README is that of the examples", () => {
  const readme = readFileSync(new URL("README.md", PACKAGE), "utf8");
  const examples = new URL("example/", PACKAGE);
  const files = readdirSync(examples).map((name) => readFileSync(new URL(name, examples), "utf8"));
  const blocks = [...readme.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code!);
  assert.equal(blocks.length, 2);
  for (const code of blocks) assert.ok(files.some((file) => file.includes(code)), code);
});

test("the README's first example says hello", async () => {
  const { host, port, user, password, database } = await migrated("outlast");
  const env = {
    ...process.env, DATABASE_URL: `postgres:///${database}`, PGHOST: host, PGPORT: String(port), PGUSER: user,
    PGPASSWORD: password ?? "",
  };
  const hello = new URL("build/example/hello.js", PACKAGE).pathname;
  const { stdout } = await promisify(execFile)(process.execPath, [hello], { env, timeout: 30_000 });
  assert.equal(stdout, "hello Ada\n");
});
