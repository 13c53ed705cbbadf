/**
 * What can go wrong, as one class each, by the SQLSTATE that the functions of Outlast raise. Whatever is not of Outlast is
 * left as the driver threw it.
 */

/** Anything of Outlast. `code` names the page in `docs/errors` that says what to do, `state` is the SQLSTATE behind it. */
export class OutlastError extends Error {
  readonly code: string | undefined;
  readonly state: string | undefined;

  constructor(message: string, options: { cause?: unknown; state?: string | undefined; code?: string | undefined } = {}) {
    super(options.code ? `${message} (${options.code})` : message, options.cause === undefined ? {} : { cause: options.cause });
    this.name = new.target.name;
    this.code = options.code;
    this.state = options.state;
  }
}

/** No transaction is open, so the intent would be a second, separate write. Nothing was sent. */
export class NoTransaction extends OutlastError {
  constructor() {
    super("no transaction is open on this connection: begin one, write your rows in it, then call this with the same connection");
  }
}

/** The same dedup key or id was accepted before with other content. Nothing was written; your transaction stays usable. */
export class Conflict extends OutlastError {
  /** The id of the event that was accepted. */
  readonly first: string;

  constructor(key: string, first: string) {
    super(`event ${key}: accepted before with other content, as ${first}; give another intent another key`);
    this.first = first;
  }
}

/** The same dedup key was accepted so long ago that nothing can be compared any more. Nothing was written. */
export class Expired extends OutlastError {
  constructor(key: string) {
    super(`event ${key}: accepted before, longer ago than keys are compared; give a new intent a new key`);
  }
}

/** Somebody newer owns this work. Roll back; do not repair. */
export class LeaseLost extends OutlastError {}
/** This event was completed before; nothing of this transaction may be kept. */
export class AlreadySealed extends OutlastError {}
/** The event is not in this claim, or a later try owns it. */
export class NotInClaim extends OutlastError {}
/** The database may have been restored or copied; a person must confirm before work goes on. */
export class Stopped extends OutlastError {}
/** A type, key, tenant or other argument that cannot be stored. */
export class BadName extends OutlastError {}
/** The payload is too large: store the content elsewhere and emit a reference to it. */
export class TooLarge extends OutlastError {}
/** A route of the event's type could never send it: its broker takes no such message. */
export class Unsendable extends OutlastError {}
/** A payload that no reader could be trusted with: not JSON, too deep, NUL, not UTF-8. */
export class BadPayload extends OutlastError {}
/** An event id of the caller's that is not a version 7 UUID of the last days. */
export class BadId extends OutlastError {}
/** The server is a standby: connect to the primary. */
export class Standby extends OutlastError {}
/** The wrong isolation level, or a transaction where none should be open. */
export class WrongTransaction extends OutlastError {}
/** The database is configured so that events would be lost. */
export class Misconfigured extends OutlastError {}
/** No such consumer is registered. */
export class UnknownConsumer extends OutlastError {}
/** The schema of Outlast is missing or too old: run `outlast migrate`. */
export class NotMigrated extends OutlastError {}
/** This consumer is retired, or has another name now. */
export class ConsumerGone extends OutlastError {}
/** What leaves the database is held until a person has confirmed. */
export class Held extends OutlastError {}
/** This login has no role of the schema that would let it do this. */
export class NotAllowed extends OutlastError {}

type Made = new (message: string, options: { cause: unknown; state: string; code: string | undefined }) => OutlastError;

/** The SQLSTATEs of the schema's functions; tests compare them with their source. */
export const STATES: Readonly<Record<string, readonly [Made, string?]>> = {
  OL001: [LeaseLost, "OUT-0005"],
  OL002: [AlreadySealed, "OUT-0005"],
  OL003: [NotInClaim, "OUT-0005"],
  OL004: [Stopped, "OUT-0006"],
  OL005: [BadName],
  OL006: [TooLarge],
  OL007: [BadPayload],
  OL008: [BadId],
  OL009: [Standby, "OUT-0004"],
  OL010: [WrongTransaction, "OUT-0015"],
  OL011: [Misconfigured, "OUT-0008"],
  OL012: [UnknownConsumer, "OUT-0007"],
  OL013: [NotMigrated, "OUT-0002"],
  OL014: [ConsumerGone, "OUT-0022"],
  OL020: [Held, "OUT-0021"],
  OL021: [Unsendable, "OUT-0023"],
  // Of a statement of ours these can only be about what `outlast migrate` makes and grants.
  "3F000": [NotMigrated, "OUT-0002"],
  "42883": [NotMigrated, "OUT-0002"],
  "42P01": [NotMigrated, "OUT-0002"],
  "42501": [NotAllowed, "OUT-0020"],
};

/** The error that a driver threw for a statement of ours: one of ours by its SQLSTATE, or itself. */
export function translate(error: unknown): unknown {
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string") return error;
  const state = error.code;
  const [made, code] = STATES[state] ?? (state.startsWith("OL") ? [OutlastError] : []);
  if (!made) return error;
  const hint = "hint" in error && typeof error.hint === "string" ? `; ${error.hint}` : "";
  return new made(error.message + hint, { cause: error, state, code });
}
