// graphile-worker as a contestant: see bench/README.md.

import pg from "pg";
import { chunks, go, NOTE, payload, run, stopped, version } from "./contract.mjs";

// Read by the library when it is loaded.
if (process.env.BENCH_PROFILE === "best") process.env.NO_LOG_SUCCESS = "1";
const { makeWorkerUtils, run: runWorker, WorkerPreset } = await import("graphile-worker");

const TASK = "unit";
const ADD_JOBS = `graphile_worker.add_jobs(array(
  select json_populate_recordset(null::graphile_worker.job_spec, $1::json)))`;
const ONE_FACT = "with business as (insert into business (note) values ($2)) select id from ";

const describe = () => ({
  name: "graphile-worker (node)",
  version: version("graphile-worker"),
  language: "node",
  default:
    "the documentation's first page of library mode (docs/library): run() with a taskList and pollInterval 1 s, each slot " +
    "fetches and completes its jobs one by one, LISTEN, a pool of 10, a line of log for each job; concurrency from " +
    "BENCH_CONCURRENCY instead of its 5",
  best:
    "docs/performance, the configuration of its quick stats (~183,000/s): localQueue.size 500, completeJobBatchDelay 0, " +
    "failJobBatchDelay 0, maxPoolSize concurrentJobs + 1, and NO_LOG_SUCCESS as in its perfTest; concurrentJobs from " +
    "BENCH_CONCURRENCY instead of its 24, pollInterval 2 s (its default)",
  fenced: false,
  history: false,
  transactional: true,
  left: "select count(*) from graphile_worker._private_jobs",
  done_at: null,
  stale: "accepted: completion deletes the job by its id alone, whoever holds its lock by now",
  skips: {
    kill: "a dead worker's jobs stay locked for 4 hours, fixed in its SQL; sooner only by hand (force_unlock_workers) or in Worker Pro",
    stop: "a stopped worker's jobs stay locked for 4 hours, fixed in its SQL",
  },
});

async function install(env) {
  const utils = await makeWorkerUtils({ connectionString: env.url });
  await utils.migrate();
  await utils.release();
}

async function fill(env) {
  const utils = await makeWorkerUtils({ connectionString: env.url });
  for (let consumer = 0; consumer < env.consumers; consumer += 1) {
    for (const numbers of chunks(1, env.units, 10_000)) await utils.addJobs(specs(env, numbers));
  }
  await utils.release();
}

const specs = (env, numbers) =>
  numbers.map((n) => ({ identifier: TASK, payload: payload(n, env.payload) }));

/** A row of business and these units, together, by the documented SQL functions (docs/sql-add-job). */
async function transaction(env, connection, numbers) {
  await connection.query("begin");
  if (env.emit === "joined") {
    await connection.query(fact(env, numbers, ONE_FACT, [NOTE]));
  } else {
    await connection.query({
      name: "business",
      text: "insert into business (note) values ($1)",
      values: [NOTE],
    });
    if (env.emit === "own") await connection.query(fact(env, numbers, "select id from ", []));
  }
  await connection.query("commit");
}

/** The call that adds them, as one batch where they are many: its first parameter is theirs, the others are the caller's. */
function fact(env, numbers, before, values) {
  if (numbers.length === 1) {
    const text = `${before}graphile_worker.add_job('${TASK}', $1::json)`;
    return { name: "one", text, values: [JSON.stringify(payload(numbers[0], env.payload)), ...values] };
  }
  const text = `${before}${ADD_JOBS}`;
  return { name: "many", text, values: [JSON.stringify(specs(env, numbers)), ...values] };
}

async function connect(env) {
  const connection = new pg.Client({ connectionString: env.url });
  await connection.connect();
  return connection;
}

async function writer(env, until) {
  const connection = await connect(env);
  const numbers = Array.from({ length: env.batch }, (_, i) => i + 1);
  let transactions = 0;
  for (; Date.now() < until; transactions += 1) await transaction(env, connection, numbers);
  await connection.end();
  return transactions;
}

async function client(env) {
  const connection = await connect(env);
  return { commit: (n) => transaction(env, connection, [n]), end: () => connection.end() };
}

async function work(env, handler) {
  const worker = env.best
    ? {
        concurrentJobs: env.concurrency,
        maxPoolSize: env.concurrency + 1,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      }
    : { concurrentJobs: env.concurrency, pollInterval: 1000 };
  await go();
  const runner = await runWorker({
    preset: { extends: [WorkerPreset], worker: { connectionString: env.url, ...worker } },
    taskList: { [TASK]: ({ n }) => handler.call(n) },
    parsedCronItems: [],
    noHandleSignals: true,
  });
  await stopped();
  await runner.stop();
}

await run({ describe, install, fill, writer, client, work });
