/**
 * What is asked of a driver: one statement, sent by the caller's own connection. Never opens one, never begins or commits.
 *
 * Drivers differ in how they send arrays, booleans and JSON, and in what they make of a column's type or name. Hence the
 * shape of a {@link Statement}.
 */
import { NoTransaction, WrongTransaction, translate } from "./errors.js";
import type { Statement } from "./statement.js";

/** A client of `pg` on which `BEGIN` was sent, or whatever else has such a `query`. Not a pool. */
export interface PgTransaction {
  query(text: string, values: string[]): Promise<{ rows: object[] }>;
  getTransactionStatus?(): "I" | "T" | "E" | null;
  /** A pool has it, and sends each statement by any of its connections. */
  totalCount?: never;
}

/** What `sql.begin` of postgres.js hands to its callback. Not `sql` itself. */
export interface PostgresTransaction {
  unsafe(text: string, values: string[]): PromiseLike<readonly object[]>;
  savepoint: unknown;
}

/** A connection inside a transaction of yours. What is called with it is there when that commits, and never was if not. */
export type Tx = PgTransaction | PostgresTransaction;

/** A pool of `pg`, or a client of it without a transaction. */
export interface PgDatabase {
  query(text: string, values: string[]): Promise<{ rows: object[] }>;
  getTransactionStatus?(): "I" | "T" | "E" | null;
}

/** `sql` of postgres.js. */
export interface PostgresDatabase {
  unsafe(text: string, values: string[]): PromiseLike<readonly object[]>;
  savepoint?: never;
}

/** A connection, or a pool of them, by which a statement commits at once. */
export type Database = PgDatabase | PostgresDatabase;

/** Sends a statement in the caller's transaction; refuses what is none, where that can be seen. */
export async function inside(tx: Tx, statement: Statement): Promise<string[]> {
  const open = isPostgres(tx) ? "savepoint" in tx : !("totalCount" in tx) && tx.getTransactionStatus?.() !== "I";
  if (!open) throw new NoTransaction();
  return send(tx, statement);
}

/** Sends a statement that must commit at once; refuses an open transaction, where that can be seen. */
export async function alone(database: Database, statement: Statement): Promise<string[]> {
  const open = isPostgres(database) ? "savepoint" in database : /[TE]/.test(database.getTransactionStatus?.() ?? "");
  if (open) throw new WrongTransaction("a transaction is open on this connection: claim, fail and renew commit at once");
  return send(database, statement);
}

async function send(connection: Tx | Database, { text, values }: Statement): Promise<string[]> {
  let rows: readonly object[];
  try {
    rows = isPostgres(connection)
      ? await connection.unsafe(text, values)
      : (await connection.query(text, values)).rows;
  } catch (error) {
    throw translate(error);
  }
  // By place: some are configured to rename columns.
  return rows.map((row) => Object.values(row)[0] as string);
}

function isPostgres<C extends object>(connection: C): connection is Extract<C, { unsafe: unknown }> {
  return "unsafe" in connection;
}
