// pg-boss as a contestant: see bench/README.md.

import pg from "pg";
import { PgBoss } from "pg-boss";
import { chunks, go, limited, NOTE, payload, run, stopped, version } from "./contract.mjs";

const QUEUE = "unit";

const describe = () => ({
  name: "pg-boss",
  version: version("pg-boss"),
  language: "node",
  default:
    "the README's first page: send(), and work() of one job every 2 s (so 1 job in 2 s for each slot); localConcurrency from " +
    "BENCH_CONCURRENCY instead of its 1, a pool of 10. In both profiles expireInSeconds is BENCH_LEASE instead of 15 minutes, " +
    "and superviseIntervalSeconds and monitorIntervalSeconds are a quarter of it (at most their 60 s)",
  best:
    "WorkOptions, as its types.d.ts documents them: batchSize 500 with burstWhenBatchFull, localConcurrency 2, pollingIntervalSeconds 0.5 (the least), " +
    "notifyPollingIntervalSeconds a quarter of BENCH_LEASE (at most its 30 s); ConstructorOptions and Queue: " +
    "useListenNotify with notify (for latency, at the price of commits that wait for each other), and partition (a table of " +
    "the queue's own). A batch's jobs are handled side by side, at most BENCH_CONCURRENCY at once, and completed by one statement",
  fenced: true,
  history: true,
  transactional: true,
  left: `select count(*) from pgboss.job where name = '${QUEUE}' and state <> 'completed'`,
  done_at:
    "select (data->>'n')::bigint, (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::bigint " +
    `from pgboss.job where name = '${QUEUE}' and state = 'completed'`,
  stale: "refused: completion asks for state 'active' and the attempt (retry_count) that was fetched",
  skips: { joined: "send() is a statement of its own, and its client does not pipeline" },
});

/** The seconds until a dead worker's job is failed and tried again; a whole second is the least. */
const lease = (env) => Math.max(1, Math.ceil(env.lease));

async function started(env, options) {
  const boss = new PgBoss({ connectionString: env.url, ...options });
  boss.on("error", console.error);
  await boss.start();
  return boss;
}

/** One that only sends: no upkeep, no timetable. */
const sender = (env) => started(env, { supervise: false, schedule: false, migrate: false, max: 2 });

async function install(env) {
  const boss = await started(env, { supervise: false, schedule: false });
  await boss.createQueue(QUEUE, {
    expireInSeconds: lease(env),
    ...(env.best ? { notify: true, partition: true } : {}),
  });
  await boss.stop();
}

async function fill(env) {
  const boss = await sender(env);
  for (let consumer = 0; consumer < env.consumers; consumer += 1) {
    for (const numbers of chunks(1, env.units, 5_000)) await boss.insert(QUEUE, jobs(env, numbers));
  }
  await boss.stop();
}

const jobs = (env, numbers) => numbers.map((n) => ({ data: payload(n, env.payload) }));

/** A row of business and these units, together. */
async function transaction(env, boss, connection, numbers) {
  await connection.query("begin");
  await connection.query({
    name: "business",
    text: "insert into business (note) values ($1)",
    values: [NOTE],
  });
  if (env.emit === "own") {
    const db = { executeSql: (text, values) => connection.query(text, values) };
    if (numbers.length === 1) await boss.send(QUEUE, payload(numbers[0], env.payload), { db });
    else await boss.insert(QUEUE, jobs(env, numbers), { db });
  }
  await connection.query("commit");
}

async function connect(env) {
  const connection = new pg.Client({ connectionString: env.url });
  await connection.connect();
  return connection;
}

let shared;

async function writer(env, until) {
  // One sender for all connections of this process, as an application has it.
  const boss = await (shared ??= sender(env));
  const connection = await connect(env);
  const numbers = Array.from({ length: env.batch }, (_, i) => i + 1);
  let transactions = 0;
  for (; Date.now() < until; transactions += 1) await transaction(env, boss, connection, numbers);
  await connection.end();
  return transactions;
}

async function client(env) {
  const [boss, connection] = await Promise.all([sender(env), connect(env)]);
  return {
    commit: (n) => transaction(env, boss, connection, [n]),
    end: async () => (await connection.end(), await boss.stop()),
  };
}

async function work(env, handler) {
  // Often enough that a dead worker's jobs are found soon after their lease.
  const often = Math.min(60, Math.max(1, Math.round(env.lease / 4)));
  const upkeep = { superviseIntervalSeconds: often, monitorIntervalSeconds: often };
  const boss = await started(env, { migrate: false, ...upkeep, ...(env.best ? { useListenNotify: true } : {}) });
  await go();
  if (env.best) {
    const slot = limited(env.concurrency);
    const options = {
      batchSize: 500,
      localConcurrency: 2,
      burstWhenBatchFull: true,
      pollingIntervalSeconds: 0.5,
      // A retry is not notified of.
      notifyPollingIntervalSeconds: Math.min(30, Math.max(0.5, env.lease / 4)),
    };
    await boss.work(QUEUE, options, async (jobs) => {
      await Promise.all(jobs.map(({ data }) => slot(() => handler.call(data.n))));
    });
  } else {
    await boss.work(QUEUE, { localConcurrency: env.concurrency }, ([job]) => handler.call(job.data.n));
  }
  await stopped();
  await boss.stop({ graceful: true });
}

await run({ describe, install, fill, writer, client, work });
