/** The functions of one schema, in one place; each is one SQL function of `docs/sql.md`. */
import * as claims from "./claim.js";
import type { Claimed, ClaimOptions, Failed, FailureClass, RegisterOptions } from "./claim.js";
import type { Database, Tx } from "./connection.js";
import * as emits from "./emit.js";
import type { Accepted, NewEvent, NewEvents } from "./emit.js";
import { BadName } from "./errors.js";
import { type WorkOptions, work as loop } from "./work.js";

/** Outlast in one schema of a database. It holds nothing and opens nothing: make one where you like. */
export class Outlast {
  readonly #schema: string;

  /** @param schema What `outlast migrate --schema` was told. */
  constructor(schema = "outlast") {
    // It becomes part of the statements.
    if (!/^[a-z][a-z0-9_]{0,39}$/.test(schema)) {
      throw new BadName(`schema ${JSON.stringify(schema)} is not 1 to 40 of a-z 0-9 _, beginning with a letter`);
    }
    this.#schema = schema;
  }

  /**
   * Writes one event in your transaction.
   *
   * @throws {NoTransaction} {@link Conflict} {@link Expired}: nothing was written, and your transaction stays usable. Anything
   * that PostgreSQL refuses ({@link BadName}, {@link TooLarge}, {@link BadPayload}, …) has aborted it: roll back.
   */
  emit = (tx: Tx, event: NewEvent): Promise<Accepted> => emits.emit(this.#schema, tx, event);

  /** Writes many events of one type in your transaction, in their order: one statement for each thousand. */
  emitAll = (tx: Tx, events: NewEvents): Promise<Accepted[]> => emits.emitAll(this.#schema, tx, events);

  /**
   * Completes one event, as the last statement of the transaction that holds your effects: both commit, or neither.
   *
   * @throws {LeaseLost} {@link AlreadySealed} {@link NotInClaim}: the transaction cannot commit any more. Roll back.
   */
  complete = (tx: Tx, token: string, id: string, outcome?: "done" | "skipped", reason?: string): Promise<void> =>
    claims.complete(this.#schema, tx, token, id, outcome, reason);

  /** Proves the lease to the end of your transaction without completing anything, for work in several transactions. */
  fence = (tx: Tx, token: string): Promise<void> => claims.fence(this.#schema, tx, token);

  /** Makes a consumer known, once; adds types to one that is known. */
  register = (database: Database, consumer: string, types: readonly string[], options: RegisterOptions = {}): Promise<void> =>
    claims.register(this.#schema, database, consumer, types, options);

  /** Hands out events under one lease; none: nothing is due. Committed when it returns. */
  claim = (database: Database, consumer: string, options: ClaimOptions = {}): Promise<Claimed[]> =>
    claims.claim(this.#schema, database, consumer, options);

  /** Records that a try failed, after its transaction was rolled back; answers what becomes of the event. */
  fail = (
    database: Database, token: string, id: string, failure: FailureClass, reason: string, afterMs?: number,
  ): Promise<Failed> => claims.fail(this.#schema, database, token, id, failure, reason, afterMs);

  /** Moves the end of a lease to `leaseMs` (15,000) from now; answers when that is. */
  renew = (database: Database, token: string, leaseMs?: number): Promise<Date> =>
    claims.renew(this.#schema, database, token, leaseMs);

  /**
   * Hands out events to a handler, one after the other, until the signal comes. The handler opens its own transaction,
   * and completes the event in it as the last statement; what it throws is recorded with {@link fail}. A lease must be
   * long enough for one handler; between two of them it is renewed.
   *
   * @throws what no waiting mends: no such consumer, no schema, no right. A database that is away is waited for.
   */
  work = (
    database: Database, consumer: string, handler: (event: Claimed) => Promise<void>, options: WorkOptions = {},
  ): Promise<void> => loop(this.#schema, database, consumer, handler, options);
}

/** The functions of the schema `outlast`. */
export const { emit, emitAll, complete, fence, register, claim, fail, renew, work } = new Outlast();
