/** A migrated database of its own for each test file, and the two drivers behind one face. */
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { promisify } from "node:util";

import pg from "pg";
import postgres from "postgres";

import type { Database, Tx } from "../src/index.js";

/** What a test does with a driver: its own statements, and those of the package on the same connection. */
export interface Driver {
  name: string;
  database: Database;
  /** Begins, commits, and rolls back what throws. */
  transaction<T>(body: (tx: Tx, query: Query) => Promise<T>): Promise<T>;
  query: Query;
  end(): Promise<void>;
}

type Query = (text: string, values?: string[]) => Promise<Record<string, any>[]>;

interface Options {
  host: string;
  port: number;
  user: string;
  password: string | undefined;
  database: string;
}

/**
 * The drivers, on a new database with the schema of Outlast and a table `booking (id text)`; and the same once more through PgBouncer in
 * transaction mode, where there is one.
 */
export async function drivers(): Promise<Driver[]> {
  const options = await migrated("outlast");
  const all = [nodePostgres(options), postgresJs(options)];
  const through = pooled(options);
  if (through) all.push(nodePostgres(through, "pg-pooled"), postgresJs(through, "postgres.js-pooled", false));
  await all[0]!.query("create table booking (id text primary key)");
  return all;
}

export async function migrated(schema: string): Promise<Options> {
  const name = `clients_${randomUUID().replaceAll("-", "")}`;
  const admin = new pg.Client(options());
  await admin.connect();
  await admin.query(`create database ${name}`);
  await admin.end();
  const program = process.env["OUTLAST_TEST_PROGRAM"];
  if (!program) throw new Error("OUTLAST_TEST_PROGRAM names the program outlast: ./run clients sets it");
  await promisify(execFile)(program, ["migrate", "--schema", schema, "--database", address(name)]);
  return options(name);
}

/** The same database through PgBouncer; none where there is none, which was said when the tests were started. */
export function pooled(options: Options): Options | undefined {
  const folder = process.env["OUTLAST_TEST_POOLED"];
  return folder ? { host: folder, port: 6432, user: "postgres", password: undefined, database: options.database } : undefined;
}

function server(): URL {
  const given = process.env["OUTLAST_TEST_PG"];
  if (!given) throw new Error("OUTLAST_TEST_PG names a server: ./run clients sets it");
  return new URL(given);
}

function address(database: string): string {
  const url = server();
  url.pathname = `/${database}`;
  return url.href;
}

export function options(database = "postgres"): Options {
  const url = server();
  const part = (name: "host" | "port" | "user", stands: string, otherwise: string) =>
    url.searchParams.get(name) || decodeURIComponent(stands) || otherwise;
  return {
    host: part("host", url.hostname, "localhost"),
    port: Number(part("port", url.port, "5432")),
    user: part("user", url.username, "postgres"),
    password: decodeURIComponent(url.password) || undefined,
    database,
  };
}

export function nodePostgres(options: Options, name = "pg"): Driver {
  const pool = new pg.Pool(options);
  const run = (client: pg.Pool | pg.ClientBase): Query => async (text, values) => (await client.query(text, values)).rows;
  return {
    name,
    database: pool,
    query: run(pool),
    async transaction(body) {
      const client = await pool.connect();
      try {
        await client.query("begin");
        const value = await body(client, run(client));
        const { command } = await client.query("commit");
        if (command !== "COMMIT") throw new Error(`commit was answered by ${command}`);
        return value;
      } catch (error) {
        await client.query("rollback");
        throw error;
      } finally {
        client.release();
      }
    },
    end: () => pool.end(),
  };
}

export function postgresJs({ password, ...options }: Options, name = "postgres.js", prepare = true): Driver {
  // Names and values are changed on the way, as some applications want it: nothing of ours may depend on them.
  const transform = { ...postgres.camel, undefined: null };
  const sql = postgres({ ...options, ...(password ? { password } : {}), transform, prepare, max: 4, onnotice: () => {} });
  const run = (sql: postgres.ISql<{}>): Query => async (text, values = []) => [...(await sql.unsafe(text, values))];
  return {
    name,
    database: sql,
    query: run(sql),
    transaction: async (body) => (await sql.begin((tx) => body(tx, run(tx)))) as never,
    end: () => sql.end(),
  };
}
