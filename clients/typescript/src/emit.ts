/** Emitting: the statement that writes an event in the caller's transaction, and what may be said beside its payload. */
import { type Tx, inside } from "./connection.js";
import { BadPayload, Conflict, Expired } from "./errors.js";
import { Arguments } from "./statement.js";

/** Any JSON value, or JSON text that is stored as it is spelled. */
export type JsonBody = { payload: unknown; json?: never } | { json: string; payload?: never };

/** The payload: JSON, or bytes of another content type. */
export type Body =
  | (JsonBody & { bytes?: never; contentType?: never })
  | { bytes: Uint8Array; contentType: string; payload?: never; json?: never };

/** What one event and many events of one type have in common. */
export interface Common {
  /** 1 to 100 of `a-z 0-9 . _ / -`, such as `booking.confirmed`. */
  type: string;
  /** Whose it is; empty where there is only one. */
  tenant?: string | undefined;
  /** The version of the payload's shape, from 1. */
  version?: number | undefined;
  /** Where it comes from, as CloudEvents means it. */
  source?: string | undefined;
  /** Who asked. */
  actor?: string | undefined;
  /** What belongs together: a UUID. */
  correlationId?: string | undefined;
  /** The event that led to this one: its UUID. */
  causationId?: string | undefined;
  /** W3C trace context; what is none is dropped. */
  traceparent?: string | undefined;
}

/** An event to be emitted. */
export type NewEvent = Common &
  Body & {
    /** What it is about; ordered consumers keep the order of each tenant and key. */
    key?: string | undefined;
    /** Same tenant, type and dedup key: the same intent, written once (30 days). */
    dedup?: string | undefined;
    /** A version 7 UUID of the caller's; else the database makes one. */
    id?: string | undefined;
    /** What of the source it is about, as CloudEvents means it. */
    subject?: string | undefined;
    /** The version of the thing that it is about. */
    aggregateVersion?: number | bigint | undefined;
    /** Number it within its key, without holes; waits for whoever else emits for this key. */
    strictKey?: boolean | undefined;
    /** Your own, copied to every reader. */
    headers?: Readonly<Record<string, string>> | undefined;
    /** Which key the bytes are encrypted with; `contentType` is then that of the plain text. */
    codecKey?: string | undefined;
    /** What tells the same content from another instead of the bytes, for encrypted ones: a MAC of 16 to 64 bytes. */
    digest?: Uint8Array | undefined;
  };

/** Many events of one type, in this order. */
export type NewEvents = Common & {
  events: readonly (JsonBody & { key?: string | undefined })[];
};

/** What became of an event: durable when your transaction commits, gone if it does not. */
export interface Accepted {
  /** Its id for life: the same in every try, after replay and after restore. */
  id: string;
  /** False: the same intent was there already, and nothing was written. */
  new: boolean;
}

/** How many events one statement of `emitAll` takes. */
const ROWS = 1000;

/** Writes one event. */
export async function emit(schema: string, tx: Tx, event: NewEvent): Promise<Accepted> {
  const args = new Arguments();
  common(args, event);
  body(args, event);
  args.text("key", event.key);
  args.text("dedup", event.dedup);
  args.uuid("event_id", event.id);
  args.text("subject", event.subject);
  args.integer("aggregate_version", event.aggregateVersion, "bigint");
  args.cast("strict_key", event.strictKey === undefined ? undefined : String(event.strictKey), "boolean");
  args.cast("headers", event.headers && JSON.stringify(event.headers), "jsonb");
  args.text("codec_key", event.codecKey);
  args.bytes("digest", event.digest);
  const columns = "json_build_array(e.id, e.new, e.conflict, e.expired)::text as answer";
  const text = `select ${columns} from ${args.call(`${schema}.emit`)} e`;
  const [answer] = await inside(tx, { text, values: args.values });
  const [id, isNew, conflict, expired] = JSON.parse(answer!) as [string, boolean, boolean, boolean];
  const name = event.dedup ?? event.id ?? id;
  if (conflict) throw new Conflict(name, id);
  if (expired) throw new Expired(name);
  return { id, new: isNew };
}

/** Writes many events: one statement for each thousand. */
export async function emitAll(schema: string, tx: Tx, { events, ...about }: NewEvents): Promise<Accepted[]> {
  const rows = events.map((event) => [json(about.type, event), event.key ?? null] as const);
  const accepted: Accepted[] = [];
  for (let from = 0; from < rows.length; from += ROWS) {
    const some = rows.slice(from, from + ROWS);
    const args = new Arguments();
    common(args, about);
    args.texts("payloads", some.map(([payload]) => payload));
    args.texts("keys", some.map(([, key]) => key));
    const text = `select json_agg(e.id order by e.ord)::text as answer from ${args.call(`${schema}.emit_all`)} e`;
    const [answer] = await inside(tx, { text, values: args.values });
    for (const id of JSON.parse(answer!) as string[]) accepted.push({ id, new: true });
  }
  return accepted;
}

function common(args: Arguments, about: Common): void {
  args.text("type", about.type);
  args.text("tenant", about.tenant);
  args.integer("version", about.version, "int");
  args.text("source", about.source);
  args.text("actor", about.actor);
  args.uuid("correlation_id", about.correlationId);
  args.uuid("causation_id", about.causationId);
  args.text("traceparent", about.traceparent);
}

function body(args: Arguments, event: NewEvent): void {
  if (event.bytes !== undefined) {
    args.bytes("bytes", event.bytes);
    args.text("content_type", event.contentType);
  } else {
    args.text("payload", json(event.type, event));
  }
}

/** JSON text of a value; what has none is refused. */
function json(type: string, { json, payload }: JsonBody): string {
  if (json !== undefined) return json;
  let text: string | undefined;
  try {
    text = JSON.stringify(payload);
  } catch (cause) {
    throw new BadPayload(`emit ${type}: payload is not JSON: ${String(cause)}`, { cause });
  }
  if (text === undefined) throw new BadPayload(`emit ${type}: payload is ${typeof payload}, which JSON cannot say`);
  return text;
}
