/**
 * A booking service. A booking and its event are one commit; the ledger entry and the completion of that event are another.
 *
 * Events come in by `POST /push`, signed by Outlast, or are claimed by the service itself (`keepLedger`).
 */
import { createServer, type IncomingMessage, type Server } from "node:http";

import { AlreadySealed, NotVerified, attempt, complete, emit, register, verify, work } from "outlast";
import type pg from "pg";

const TABLES = `
  create table if not exists booking (
    id bigint generated always as identity primary key,
    request text not null unique,      -- the client's own name for it: a repeated request is no second booking
    guest text not null
  );
  create table if not exists ledger (  -- no unique constraint, on purpose: what was handled twice would be here twice
    booking bigint not null,
    event uuid not null
  )`;

export async function prepare(pool: pg.Pool): Promise<void> {
  await pool.query(TABLES);
}

/** Writes the booking and its event in one transaction. */
async function book(pool: pg.Pool, request: string, guest: string): Promise<void> {
  await transaction(pool, async (client) => {
    const { rows } = await client.query(
      "insert into booking (request, guest) values ($1, $2) on conflict do nothing returning id::int",
      [request, guest],
    );
    if (rows.length === 0) return;
    const booking: number = rows[0].id;
    await emit(client, { type: "booking.confirmed", key: `booking/${booking}`, payload: { booking, guest } });
  });
}

/** Writes the entry and completes the event in one transaction: both are there, or neither. */
async function enter(pool: pg.Pool, token: string, id: string, payload: Uint8Array): Promise<void> {
  const { booking } = JSON.parse(Buffer.from(payload).toString()) as { booking: number };
  await transaction(pool, async (client) => {
    await client.query("insert into ledger (booking, event) values ($1, $2)", [booking, id]);
    await complete(client, token, id);
  });
}

/** Claims the events instead of being pushed to, until the signal comes. */
export async function keepLedger(pool: pg.Pool, signal: AbortSignal): Promise<void> {
  await register(pool, "ledger", ["booking.confirmed"], { start: "earliest" });
  await work(pool, "ledger", ({ token, id, payload }) => enter(pool, token, id, payload), {
    leaseMs: 3_000,
    idleMs: 200,
    signal,
  });
}

/** The service itself; `keys` are those that pushes are signed with. */
export function service(pool: pg.Pool, keys: readonly string[]): Server {
  return createServer(async (request, response) => {
    try {
      const body = await whole(request);
      if (request.method === "POST" && request.url === "/bookings") {
        await book(pool, String(request.headers["idempotency-key"]), String(JSON.parse(body.toString()).guest));
        response.writeHead(201).end();
      } else if (request.method === "POST" && request.url === "/push") {
        await push(pool, request, body, keys);
        response.writeHead(202, { "outlast-outcome": "accepted" }).end();
      } else {
        response.writeHead(404).end();
      }
    } catch (error) {
      if (!(error instanceof NotVerified)) console.error(error);
      response.writeHead(error instanceof NotVerified ? 401 : 500).end();
    }
  });
}

/** A try that lost its lease throws, and nothing of it is kept; one that comes twice finds that it is done. */
async function push(pool: pg.Pool, request: IncomingMessage, body: Buffer, keys: readonly string[]): Promise<void> {
  const { id } = verify(request.headersDistinct, body, keys);
  const { token } = attempt(request.headers);
  try {
    await enter(pool, token, id, body);
  } catch (error) {
    if (!(error instanceof AlreadySealed)) throw error;
  }
}

async function whole(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

async function transaction<T>(pool: pg.Pool, body: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query("begin");
    const value = await body(client);
    await client.query("commit");
    return value;
  } catch (error) {
    await client.query("rollback").catch((lost: Error) => (broken = lost));
    throw error;
  } finally {
    client.release(broken);
  }
}
