/** A plain worker: claim, hand out, record what failed. It opens no transaction: the handler completes in its own. */
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

import { type Claimed, type ClaimOptions, type FailureClass, claim, fail, isOrdered, renew } from "./claim.js";
import type { Database } from "./connection.js";
import { AlreadySealed, LeaseLost, NotInClaim, OutlastError } from "./errors.js";

/** Thrown by a handler that knows what kind of failure it is. Whatever else it throws is `unclassified`, and tried again. */
export class Failure extends Error {
  override readonly name = "Failure";

  constructor(
    readonly failure: FailureClass,
    reason: string,
    readonly afterMs?: number,
  ) {
    super(reason);
  }
}

export interface WorkOptions extends ClaimOptions {
  /** How long to wait when nothing was due. Default 1,000. */
  idleMs?: number | undefined;
  /** Ends the loop after the claim that is in work. */
  signal?: AbortSignal | undefined;
  /** Told of what the loop lives through: the database was away, a lease was lost. Default: a line on stderr. */
  onError?: ((error: unknown) => void) | undefined;
}

type Handler = (event: Claimed) => Promise<void>;

export async function work(
  schema: string, database: Database, consumer: string, handler: Handler, options: WorkOptions,
): Promise<void> {
  const { idleMs = 1000, signal, onError = warn, n = 10, leaseMs = 15_000, holder = randomUUID() } = options;
  let ordered: boolean | undefined;
  while (!signal?.aborted) {
    try {
      ordered ??= await isOrdered(schema, database, consumer);
      const events = await claim(schema, database, consumer, { n, leaseMs, holder });
      await handle(schema, database, events, handler, leaseMs, ordered);
      if (events.length > 0) continue;
    } catch (error) {
      // A lost lease: somebody newer has the rest. What is not ours: the database is away for a while.
      if (error instanceof OutlastError && !(error instanceof LeaseLost)) throw error;
      onError(error);
    }
    await pause(idleMs, undefined, signal ? { signal } : {}).catch(() => {});
  }
}

function warn(error: unknown): void {
  console.warn(`outlast: ${error instanceof Error ? error.message : String(error)}`);
}

async function handle(
  schema: string, database: Database, events: Claimed[], handler: Handler, leaseMs: number, ordered: boolean,
): Promise<void> {
  const failed = new Set<string>();
  let renewed = Date.now();
  for (const event of events) {
    const key = JSON.stringify([event.tenant, event.key]);
    // It waits behind the one that failed.
    if (ordered && event.key !== null && failed.has(key)) continue;
    if (Date.now() - renewed > leaseMs / 3) {
      await renew(schema, database, event.token, leaseMs);
      renewed = Date.now();
    }
    try {
      await handler(event);
    } catch (error) {
      if (error instanceof LeaseLost) throw error;
      if (await record(schema, database, event, error)) failed.add(key);
    }
  }
}

/** Whether the event is still to be done. */
async function record(schema: string, database: Database, event: Claimed, error: unknown): Promise<boolean> {
  const { failure, afterMs } = error instanceof Failure ? error : { failure: "unclassified" as const, afterMs: undefined };
  const reason = error instanceof Error ? error.message : String(error);
  try {
    await fail(schema, database, event.token, event.id, failure, reason, afterMs);
    return true;
  } catch (refused) {
    // It is completed, whatever the handler saw: the answer to its COMMIT may have been lost.
    if (refused instanceof AlreadySealed) return false;
    if (refused instanceof NotInClaim) return true;
    throw refused;
  }
}
