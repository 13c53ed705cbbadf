/** The envelope: what an event is, from the headers of a push or the attributes of a broker's message. CloudEvents 1.0. */
import { OutlastError } from "./errors.js";
import { type HeadersLike, pairs } from "./headers.js";

/** Headers that are no envelope of ours, or were changed on their way. */
export class Unreadable extends OutlastError {}

/** An event without its payload. */
export interface Envelope {
  /** The event's id: the same at every attempt, after replay and restore. */
  id: string;
  type: string;
  /** The version of the payload's shape. */
  version: number;
  /** Whose it is; empty where there is only one tenant. */
  tenant: string;
  /** What it is about; order is kept per tenant and key. */
  key: string | null;
  /** Its number within its key, if the emitter asked for one. */
  keySeq: bigint | null;
  /** The version of what it is about. */
  aggregateVersion: bigint | null;
  source: string | null;
  subject: string | null;
  actor: string | null;
  correlationId: string | null;
  causationId: string | null;
  /** W3C trace context. */
  traceparent: string | null;
  /** The emitter's own. */
  headers: Record<string, string>;
  contentType: string;
  /** Which key decodes the payload, if it is encoded. */
  codecKey: string | null;
  /** When it was emitted; `time` has the microseconds too. */
  emittedAt: Date;
  /** When it was emitted, as it was written (RFC 3339). */
  time: string;
  /** Where in which log it stands. */
  log: { log: string; id: bigint } | null;
}

/** Before the name of a header of the emitter's own. */
const OWN = "outlast-h-";

/**
 * Reads the envelope from headers; what is not ours is passed over.
 *
 * @throws {Unreadable} what is missing or cannot be read.
 */
export function envelope(headers: HeadersLike): Envelope {
  const read = new Map<string, string>();
  const own: [string, string][] = [];
  for (const [name, raw] of pairs(headers)) {
    if (!isOurs(name)) continue;
    const value = decode(name, raw);
    if (name.startsWith(OWN)) own.push([decode(OWN, name.slice(OWN.length)), value]);
    else read.set(name, value);
  }
  const get = (name: string) => read.get(name) ?? null;
  const need = (name: string) => {
    const value = read.get(name);
    if (value === undefined) throw new Unreadable(`the attribute ${name} is missing`);
    return value;
  };
  const parsed = <T>(name: string, parse: (text: string) => T | undefined): T | null => {
    const text = read.get(name);
    return text === undefined ? null : (parse(text) ?? bad(name, text));
  };
  const spec = need("ce-specversion");
  if (spec !== "1.0") bad("ce-specversion", spec);
  const time = need("ce-time");
  return {
    id: uuid(need("ce-id")) ?? bad("ce-id", need("ce-id")),
    type: need("ce-type"),
    version: parsed("outlast-version", version) ?? 1,
    tenant: get("outlast-tenant") ?? "",
    key: get("outlast-key"),
    keySeq: parsed("outlast-key-seq", int64),
    aggregateVersion: parsed("outlast-aggregate-version", int64),
    // CloudEvents wants a source; an event without one says so.
    source: read.has("outlast-source") ? null : get("ce-source"),
    subject: get("ce-subject"),
    actor: get("outlast-actor"),
    correlationId: parsed("outlast-correlation-id", uuid),
    causationId: parsed("outlast-causation-id", uuid),
    traceparent: read.has("traceparent") && isTraceparent(need("traceparent")) ? get("traceparent") : null,
    headers: Object.fromEntries(own),
    contentType: get("content-type") ?? "application/json",
    codecKey: get("outlast-codec-key"),
    emittedAt: instant(time) ?? bad("ce-time", time),
    time,
    log: parsed("outlast-log", place),
  };
}

/** One try of a push, under a lease. */
export interface Attempt {
  /** The lease: what `complete` needs. A secret while it lives. */
  token: string;
  /** From 1. */
  number: number;
  /** The consumer's name. */
  consumer: string;
  /** How many milliseconds there are, from the arrival on, to answer or to complete. */
  withinMs: number;
}

/**
 * Reads from the headers of a push which try it is.
 *
 * @throws {Unreadable} what is missing or cannot be read.
 */
export function attempt(headers: HeadersLike): Attempt {
  const read = new Map(pairs(headers));
  const need = <T>(name: string, parse: (text: string) => T | undefined): T => {
    const text = read.get(name);
    if (text === undefined) throw new Unreadable(`the attribute ${name} is missing`);
    return parse(text) ?? bad(name, text);
  };
  const count = (text: string) => (/^[0-9]{1,9}$/.test(text) ? Number(text) : undefined);
  return {
    token: need("outlast-token", uuid),
    number: need("outlast-attempt", count),
    consumer: need("outlast-consumer", (text) => decode("outlast-consumer", text)),
    withinMs: need("outlast-within-ms", count),
  };
}

/** Other headers of a request may hold what is no percent-encoding. */
function isOurs(name: string): boolean {
  return name.startsWith("ce-") || name.startsWith("outlast-") || name === "content-type" || name === "traceparent";
}

function bad(name: string, value: string): never {
  const shown = value.replace(/\p{Cc}/gu, "").slice(0, 100);
  throw new Unreadable(`the attribute ${name} cannot be read: \`${shown}\``);
}

/** Percent-encoding of UTF-8. */
function decode(name: string, value: string): string {
  if (!value.includes("%")) return value;
  if (/%(?![0-9A-Fa-f]{2})/.test(value)) bad(name, value);
  const bytes = value
    .split(/%([0-9A-Fa-f]{2})/)
    .map((part, nth) => Buffer.from(part, nth % 2 === 1 ? "hex" : "utf8"));
  try {
    // A byte order mark is a character like any other here.
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.concat(bytes));
  } catch {
    return bad(name, value);
  }
}

function uuid(text: string): string | undefined {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text) ? text.toLowerCase() : undefined;
}

function version(text: string): number | undefined {
  return /^[0-9]{1,5}$/.test(text) && Number(text) <= 65_535 ? Number(text) : undefined;
}

function int64(text: string): bigint | undefined {
  if (!/^[+-]?[0-9]{1,19}$/.test(text)) return undefined;
  const value = BigInt(text.replace("+", ""));
  return BigInt.asIntN(64, value) === value ? value : undefined;
}

function instant(text: string): Date | undefined {
  if (!/^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$/.test(text)) return undefined;
  const at = new Date(text.replace(/(\.[0-9]{3})[0-9]+Z$/, "$1Z"));
  return Number.isNaN(at.getTime()) ? undefined : at;
}

function place(text: string): { log: string; id: bigint } | undefined {
  const colon = text.lastIndexOf(":");
  const id = colon < 0 ? undefined : int64(text.slice(colon + 1));
  return id === undefined ? undefined : { log: text.slice(0, colon), id };
}

/** What is none is dropped: a trace then begins anew. */
function isTraceparent(text: string): boolean {
  const found = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[\x00-\x7f]*)?$/.exec(text);
  if (!found || text.length > 500) return false;
  const [, level, trace, parent, rest] = found;
  return level !== "ff" && !/^0+$/.test(trace!) && !/^0+$/.test(parent!) && (rest === undefined || level !== "00");
}
