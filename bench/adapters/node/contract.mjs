// What an adapter written for Node reads and prints: see bench/README.md. The same as the crate `contract` is for Rust; an
// adapter is an object with these functions, and a call of `run`:
//
//   describe()                what `describe` prints
//   install(env)              the schema, in an empty database
//   fill(env)                 env.units waiting units
//   writer(env, until)        one connection's loop while `Date.now() < until`; answers its transactions
//   work(env, handler)        handles units by `handler.call(n)` until `stopped()`; calls `go()` when everything is ready
//   client(env)               something with `commit(n)`, which commits a business row and unit n, and `end()`

import { Console } from "node:console";
import { existsSync, readFileSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

// stdout is for the lines of the contract; whatever a library logs goes to stderr.
globalThis.console = new Console(process.stderr);

export const NOTE = "a business row of modest length";

function readEnv() {
  const { env } = process;
  const number = (name, otherwise) => {
    const value = Number(env[name] ?? otherwise);
    if (!Number.isFinite(value)) throw new Error(`${name}=${env[name]} cannot be read`);
    return value;
  };
  const emit = env.BENCH_EMIT ?? "own";
  if (!["none", "own", "joined"].includes(emit)) {
    throw new Error(`BENCH_EMIT=${emit} is none of none, own, joined`);
  }
  if (!env.BENCH_URL) throw new Error("BENCH_URL is not set");
  return {
    url: env.BENCH_URL,
    best: env.BENCH_PROFILE === "best",
    units: number("BENCH_UNITS", 0),
    payload: number("BENCH_PAYLOAD", 200),
    concurrency: number("BENCH_CONCURRENCY", 50),
    handler: env.BENCH_HANDLER ?? "noop",
    gate: env.BENCH_GATE ?? "",
    lease: number("BENCH_LEASE", 30),
    consumers: number("BENCH_CONSUMERS", 1),
    writers: number("BENCH_WRITERS", 1),
    batch: number("BENCH_BATCH", 1),
    emit,
    seconds: number("BENCH_SECONDS", 1),
    rate: number("BENCH_RATE", 200),
  };
}

/** What a contestant's own handler calls. */
class Handler {
  handled = 0;
  #what;
  #gate;
  #hintAt;

  constructor(env) {
    this.#what = env.handler;
    this.#gate = env.gate;
    this.#hintAt = env.units * env.consumers;
  }

  /** Handles unit n. Whatever calls it returns right after it. */
  async call(n) {
    if (this.#what === "ms") {
      await sleep(1);
    } else if (this.#what === "stamp") {
      say({ event: "start", n, at: now() });
    } else if (this.#what === "gate") {
      say({ event: "start", n, at: now() });
      while (!existsSync(this.#gate)) await sleep(2);
    }
    this.handled += 1;
    if (this.handled === this.#hintAt) say({ event: "handled" });
  }
}

/** Runs `each` for every item, at most `limit` at once: for batches that hold more than may be handled at once. */
export function limited(limit) {
  const waiting = [];
  let free = limit;
  return async (each) => {
    if (free > 0) free -= 1;
    else await new Promise((resolve) => waiting.push(resolve));
    try {
      return await each();
    } finally {
      if (waiting.length > 0) waiting.shift()();
      else free += 1;
    }
  };
}

/** Does what BENCH_VERB says. */
export async function run(adapter) {
  const verb = process.env.BENCH_VERB;
  if (verb === "describe") {
    say(adapter.describe());
    return;
  }
  const env = readEnv();
  if (verb === "install") {
    await adapter.install(env);
  } else if (verb === "fill") {
    await adapter.fill(env);
  } else if (verb === "enqueue") {
    await enqueue(adapter, env);
  } else if (verb === "trickle") {
    await trickle(adapter, env);
  } else if (verb === "work") {
    const handler = new Handler(env);
    await adapter.work(env, handler);
    say({ event: "end", handled: handler.handled });
  } else {
    throw new Error(`there is no verb ${verb}: see bench/README.md`);
  }
  // Nothing that a library left open keeps a finished process here.
  process.exit(0);
}

async function enqueue(adapter, env) {
  const start = performance.now();
  const until = Date.now() + env.seconds * 1000;
  const writers = Array.from({ length: env.writers }, () => adapter.writer(env, until));
  const transactions = (await Promise.all(writers)).reduce((sum, count) => sum + count, 0);
  say({ event: "end", transactions, seconds: (performance.now() - start) / 1000 });
}

async function trickle(adapter, env) {
  const client = await adapter.client(env);
  await go();
  const start = performance.now();
  const committed = [];
  for (let n = 1; n <= env.units; n += 1) {
    const early = start + ((n - 1) * 1000) / env.rate - performance.now();
    if (early > 0) await sleep(Math.ceil(early));
    await client.commit(n);
    committed.push({ event: "committed", n, at: now() });
  }
  committed.forEach(say);
  await client.end();
}

let input;

/** One reader of stdin for `go` and `stopped`, so that no byte is lost between them. */
function stdin() {
  if (input) return input;
  let line, end;
  input = {
    line: new Promise((resolve) => (line = resolve)),
    end: new Promise((resolve) => (end = resolve)),
  };
  process.stdin.on("data", (bytes) => bytes.includes(10) && line());
  for (const event of ["end", "close", "error"]) process.stdin.on(event, () => (line(), end()));
  return input;
}

/** Says `ready`, and waits for the line that starts the clock. */
export async function go() {
  say({ event: "ready" });
  await stdin().line;
}

/** Resolves when stdin ends: the worker shall stop in good order. */
export async function stopped() {
  await stdin().end;
}

/** Prints a line, at once. */
export function say(line) {
  let bytes = Buffer.from(`${JSON.stringify(line)}\n`);
  while (bytes.length > 0) {
    try {
      bytes = bytes.subarray(writeSync(1, bytes));
    } catch (error) {
      // A runner that is gone needs no lines; a full pipe takes them in a moment.
      if (error.code !== "EAGAIN") return;
    }
  }
}

/** Microseconds since 1970. */
export function now() {
  return Number(Temporal.Now.instant().epochNanoseconds / 1000n);
}

/** A unit's payload of about `size` bytes as JSON. */
export function payload(n, size) {
  const bare = JSON.stringify({ n, pad: "" }).length;
  return { n, pad: "x".repeat(Math.max(0, size - bare)) };
}

/** The version of an installed package. */
export function version(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}

/** The numbers from..to in chunks. */
export function* chunks(from, to, size) {
  for (let next = from; next <= to; next += size) {
    yield Array.from({ length: Math.min(size, to - next + 1) }, (_, i) => next + i);
  }
}
