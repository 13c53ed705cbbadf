/**
 * Working without the Rust worker: claim commits at once and gives a token; complete is the last statement of the
 * transaction that holds your effects, and raises when somebody newer owns the event.
 */
import { type Database, type Tx, alone, inside } from "./connection.js";
import { Arguments } from "./statement.js";

/** An event that was handed out under a lease. */
export interface Claimed {
  /** The lease: of all events of one claim. */
  token: string;
  /** The event's id: the same in every try, after replay and after restore. */
  id: string;
  key: string | null;
  tenant: string;
  /** From 1. */
  attempt: number;
  /** The version of the payload's shape. */
  version: number;
  /** Byte for byte what was emitted. */
  payload: Buffer;
  contentType: string;
}

/** What kind of failure it was: it decides whether and when there is another try. */
export type FailureClass = "retry" | "throttled" | "unknown" | "permanent" | "unclassified";

/** What became of it: another try comes; a person must look; or it waits behind an earlier event of its key. */
export type Failed = "retry" | "quarantined" | "behind";

export interface RegisterOptions {
  /** From which event on, decided once. Default `now`. */
  start?: "now" | "earliest" | undefined;
  /** Keep the order of each tenant and key. */
  ordered?: boolean | undefined;
  /** How many events of an ordered consumer can be in work at once. */
  lanes?: number | undefined;
}

export interface ClaimOptions {
  /** At most so many events, 1 to 1000. Default 1. */
  n?: number | undefined;
  /** Default 15,000. */
  leaseMs?: number | undefined;
  /** Any stable name of this runner: what it has completed is then ended at its next claim. */
  holder?: string | undefined;
}

export async function register(
  schema: string, database: Database, consumer: string, types: readonly string[], options: RegisterOptions,
): Promise<void> {
  const args = new Arguments();
  args.text("consumer", consumer);
  args.texts("types", types);
  args.text("start", options.start);
  args.cast("ordered", options.ordered === undefined ? undefined : String(options.ordered), "boolean");
  args.integer("lanes", options.lanes, "int");
  await alone(database, { text: `select ${args.call(`${schema}.register`)}::text as answer`, values: args.values });
}

/** Of an ordered consumer, what comes after an event that failed waits behind it. */
export async function isOrdered(schema: string, database: Database, consumer: string): Promise<boolean> {
  const text = `select c.ordered::text as answer from ${schema}.consumer c where c.name = $1::text`;
  return (await alone(database, { text, values: [consumer] }))[0] === "true";
}

export async function claim(
  schema: string, database: Database, consumer: string, options: ClaimOptions,
): Promise<Claimed[]> {
  const args = new Arguments();
  args.text("kind", "event");
  args.text("name", consumer);
  args.integer("n", options.n, "int");
  args.integer("lease_ms", options.leaseMs, "int");
  args.text("holder", options.holder);
  const columns = "c.token, c.id, c.key, c.tenant, c.attempt, c.version, encode(c.payload, 'hex'), c.content_type";
  const text = `select json_build_array(${columns})::text as answer from ${args.call(`${schema}.claim`)} c`;
  const rows = await alone(database, { text, values: args.values });
  return rows.map((row) => {
    const [token, id, key, tenant, attempt, version, hex, contentType] = JSON.parse(row) as [
      string, string, string | null, string, number, number, string, string,
    ];
    return { token, id, key, tenant, attempt, version, payload: Buffer.from(hex, "hex"), contentType };
  });
}

export async function complete(
  schema: string, tx: Tx, token: string, id: string, outcome?: "done" | "skipped", reason?: string,
): Promise<void> {
  const args = new Arguments();
  args.uuid("token", token);
  args.uuid("id", id);
  args.text("outcome", outcome);
  args.text("reason", reason);
  await inside(tx, { text: `select ${args.call(`${schema}.complete`)}::text as answer`, values: args.values });
}

export async function fence(schema: string, tx: Tx, token: string): Promise<void> {
  const args = new Arguments();
  args.uuid("token", token);
  await inside(tx, { text: `select ${args.call(`${schema}.fence`)}::text as answer`, values: args.values });
}

export async function fail(
  schema: string, database: Database, token: string, id: string, failure: FailureClass, reason: string, afterMs?: number,
): Promise<Failed> {
  const args = new Arguments();
  args.uuid("token", token);
  args.uuid("id", id);
  args.text("class", failure);
  // An error's text may hold anything; that it failed must be recorded all the same.
  args.text("reason", reason.replaceAll("\0", "").toWellFormed());
  args.integer("after_ms", afterMs, "bigint");
  const text = `select ${args.call(`${schema}.fail`)} as answer`;
  const [became] = await alone(database, { text, values: args.values });
  return became as Failed;
}

export async function renew(schema: string, database: Database, token: string, leaseMs?: number): Promise<Date> {
  const args = new Arguments();
  args.uuid("token", token);
  args.integer("lease_ms", leaseMs, "int");
  const text = `select floor(extract(epoch from ${args.call(`${schema}.renew`)}) * 1000)::text as answer`;
  const [milliseconds] = await alone(database, { text, values: args.values });
  return new Date(Number(milliseconds));
}
