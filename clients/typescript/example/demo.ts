/**
 * The demo: the service as a process of its own, 500 bookings by 8 clients, a SIGKILL on the way, and the account at the end,
 * from the tables. `./run demo --language typescript` starts the server and sets the environment. With `--push` the events
 * come in by `outlast run --only push`; without, the service claims them.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

import pg from "pg";

const BOOKINGS = 500;
const CLIENTS = 8;
const DEADLINE_MS = 60_000;
const PUSHED = process.argv.includes("--push");
const KEY = `whsec_${randomBytes(24).toString("base64")}`;

const server = new URL(process.env["OUTLAST_TEST_PG"]!);
const at = (database: string) => Object.assign(new URL(server), { pathname: `/${database}` }).href;
const database = `bookings_${process.pid}`;
const program = process.env["OUTLAST_TEST_PROGRAM"]!;
const began = Date.now();

const admin = new pg.Pool({ connectionString: at("postgres"), max: 1 });
await admin.query(`create database ${database}`);
await admin.end();
execFileSync(program, ["migrate", "--database", at(database)], { stdio: ["ignore", "ignore", "inherit"] });
const pool = new pg.Pool({ connectionString: at(database), max: 2 });

// The same after a restart: that is where pushes go.
const port = await freePort();
let running = await start();
const pushing = PUSHED ? await push() : undefined;
let killed = 0;
await Promise.all(Array.from({ length: CLIENTS }, (_, client) => ask(client)));
await settled();
const [account] = (
  await pool.query<Record<string, number>>(`
    select (select count(*)::int from booking) as booked,
      (select count(distinct booking)::int from ledger) as handled,
      (select count(*)::int from (select from ledger group by booking having count(*) > 1) d) as twice,
      (select count(*)::int from booking b where not exists (select from ledger l where l.booking = b.id)) as lost,
      (select count(*)::int from ledger l where not exists (select from booking b where b.id = l.booking)) as phantom`)
).rows as [Record<string, number>];
await pool.end();
for (const child of [running, pushing]) {
  if (!child) continue;
  child.kill("SIGTERM");
  await once(child, "exit");
}

const { booked, handled, twice, lost, phantom } = account;
const right = booked === BOOKINGS && handled === BOOKINGS && twice === 0 && lost === 0 && phantom === 0;
if (process.argv.includes("--json")) {
  console.log(JSON.stringify({ language: "typescript", pushed: PUSHED, asked: BOOKINGS, ...account, killed, right }));
} else {
  console.log(`asked for            ${BOOKINGS} bookings, by ${CLIENTS} clients; the service was killed ${killed} times`);
  console.log(`events               ${PUSHED ? "pushed to the service, signed" : "claimed by the service"}`);
  console.log(`booked               ${booked}`);
  console.log(`handled              ${handled}`);
  console.log(`lost ${lost} · phantom ${phantom} · handled twice ${twice}`);
  console.log(`${right ? "every booking was handled once" : "THE ACCOUNT IS WRONG"}: ${(Date.now() - began) / 1000} s`);
}
process.exitCode = right ? 0 : 1;

/** Starts the service, and waits until it listens. */
async function start(): Promise<ChildProcess> {
  const child = spawn(process.execPath, [new URL("main.js", import.meta.url).pathname], {
    env: { ...process.env, DATABASE_URL: at(database), PORT: String(port), PUSH_KEYS: PUSHED ? KEY : "" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  process.once("exit", () => child.kill("SIGKILL"));
  for await (const line of createInterface(child.stdout!)) if (line.startsWith("listening")) return child;
  throw new Error("the service ended before it listened");
}

/** Makes the service an endpoint, and starts who pushes to it: what is emitted once it reads the log. */
async function push(): Promise<ChildProcess> {
  const folder = mkdtempSync(join(tmpdir(), "outlast-demo-"));
  process.once("exit", () => rmSync(folder, { recursive: true }));
  const endpoint = `url = "http://127.0.0.1:${port}/push"\ntypes = ["booking.confirmed"]\nkey = "ledger"\n`;
  writeFileSync(join(folder, "outlast.toml"), `[cluster.endpoint.ledger]\n${endpoint}`);
  const env = { ...process.env, OUTLAST_EGRESS_ALLOW: "127.0.0.1", OUTLAST_SECRET_LEDGER: KEY, OUTLAST_LOG: "error" };
  execFileSync(program, ["apply", "--yes", "--database", at(database)], { cwd: folder, env, stdio: "ignore" });
  const child = spawn(program, ["run", "--only", "push", "--database", at(database)], { cwd: folder, env, stdio: "inherit" });
  process.once("exit", () => child.kill("SIGKILL"));
  while ((await pool.query("select from outlast.consumer where name = 'push/ledger'")).rowCount === 0) {
    if (child.exitCode !== null || Date.now() - began > DEADLINE_MS) throw new Error("nobody pushes to the service");
    await pause(50);
  }
  return child;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Asks for its share, each until it is answered; after a third of them the service is killed. */
async function ask(client: number): Promise<void> {
  for (let nth = client; nth < BOOKINGS; nth += CLIENTS) {
    if (nth === Math.floor(BOOKINGS / 3)) await kill();
    while (!(await answered(nth))) {
      if (Date.now() - began > DEADLINE_MS) throw new Error(`booking ${nth} was not answered`);
      await pause(20);
    }
  }
}

async function answered(nth: number): Promise<boolean> {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/bookings`, {
      method: "POST",
      headers: { "idempotency-key": `request ${nth}`, "content-type": "application/json" },
      body: JSON.stringify({ guest: `Zoë ${nth} 😀` }),
    });
    return answer.status === 201;
  } catch {
    return false; // The service is away: the same request again.
  }
}

async function kill(): Promise<void> {
  running.kill("SIGKILL");
  await once(running, "exit");
  killed += 1;
  running = await start();
}

/** Waits until there is an entry for each booking. */
async function settled(): Promise<void> {
  for (;;) {
    const { rows } = await pool.query("select count(distinct booking)::int as n from ledger");
    if (rows[0].n >= BOOKINGS) return;
    if (Date.now() - began > DEADLINE_MS) return; // The account says what is missing.
    await pause(50);
  }
}
