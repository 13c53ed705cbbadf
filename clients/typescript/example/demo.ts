/**
 * The demo: the service as a process of its own, 500 bookings by 8 clients, a SIGKILL on the way, and the account at the end,
 * from the tables. `./run demo --language typescript` starts the server and sets the environment.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

import pg from "pg";

const BOOKINGS = 500;
const CLIENTS = 8;
const DEADLINE_MS = 60_000;

const server = new URL(process.env["OUTLAST_TEST_PG"]!);
const at = (database: string) => Object.assign(new URL(server), { pathname: `/${database}` }).href;
const database = `bookings_${process.pid}`;
const began = Date.now();

const admin = new pg.Pool({ connectionString: at("postgres"), max: 1 });
await admin.query(`create database ${database}`);
await admin.end();
execFileSync(process.env["OUTLAST_TEST_PROGRAM"]!, ["migrate", "--database", at(database)], { stdio: ["ignore", "ignore", "inherit"] });
const pool = new pg.Pool({ connectionString: at(database), max: 2 });

let running = await start();
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
running.child.kill("SIGTERM");
await once(running.child, "exit");

const { booked, handled, twice, lost, phantom } = account;
const right = booked === BOOKINGS && handled === BOOKINGS && twice === 0 && lost === 0 && phantom === 0;
if (process.argv.includes("--json")) {
  console.log(JSON.stringify({ language: "typescript", asked: BOOKINGS, ...account, killed, right }));
} else {
  console.log(`asked for            ${BOOKINGS} bookings, by ${CLIENTS} clients; the service was killed ${killed} times`);
  console.log(`booked               ${booked}`);
  console.log(`handled              ${handled}`);
  console.log(`lost ${lost} · phantom ${phantom} · handled twice ${twice}`);
  console.log(`${right ? "every booking was handled once" : "THE ACCOUNT IS WRONG"}: ${(Date.now() - began) / 1000} s`);
}
process.exitCode = right ? 0 : 1;

/** Starts the service, and waits until it listens. */
async function start(): Promise<{ child: ChildProcess; port: number }> {
  const child = spawn(process.execPath, [new URL("main.js", import.meta.url).pathname], {
    env: { ...process.env, DATABASE_URL: at(database), PORT: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  process.once("exit", () => child.kill("SIGKILL"));
  for await (const line of createInterface(child.stdout!)) {
    const port = /listening on (\d+)/.exec(line)?.[1];
    if (port) return { child, port: Number(port) };
  }
  throw new Error("the service ended before it listened");
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
    const answer = await fetch(`http://127.0.0.1:${running.port}/bookings`, {
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
  running.child.kill("SIGKILL");
  await once(running.child, "exit");
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
