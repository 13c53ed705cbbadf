import assert from "node:assert/strict";
import { randomBytes, randomUUID } from "node:crypto";
import { after, describe, test } from "node:test";

import pg from "pg";
import postgres from "postgres";

import {
  BadId, BadName, BadPayload, Conflict, Expired, NotAllowed, NotMigrated, NoTransaction, Outlast, OutlastError, TooLarge, emit, emitAll,
  type NewEvent, type Tx,
} from "../src/index.js";
import { type Driver, drivers, migrated, nodePostgres, options } from "./database.js";

const ODD = "\ufeff😀e\u0301\u202e \"\\\n\u2028Zürich";

/** What the log has of an event, its bytes in hex. */
async function stored(driver: Driver, id: string): Promise<Record<string, any> | undefined> {
  const [row] = await driver.query(
    `select e.type, e.key, e.tenant, e.version, e.source, e.subject, e.actor, e.aggregate_version::text as aggregate,
       e.correlation_id::text as correlation, e.causation_id::text as causation, e.traceparent as trace,
       e.headers::text as headers, e.content_type as content, encode(e.payload, 'hex') as hex, e.codec_key as codec,
       e.key_seq::text as seq
     from outlast.event e where e.id = $1::text::uuid`,
    [id],
  );
  return row;
}

const hex = (text: string) => Buffer.from(text).toString("hex");

describe("emit", async () => {
  const all = await drivers();
  after(() => Promise.all(all.map((driver) => driver.end())));

  for (const driver of all) {
    describe(driver.name, () => {
      test("what is rolled back leaves nothing", async () => {
        const type = `gone.${driver.name}`;
        const broken = driver.transaction(async (tx, query) => {
          await query("insert into booking values ('gone')");
          await emit(tx, { type, payload: {} });
          throw new Error("the business says no");
        });
        await assert.rejects(broken, /the business says no/);
        assert.deepEqual(await driver.query("select from outlast.event where type = $1", [type]), []);
        assert.deepEqual(await driver.query("select from booking where id = 'gone'"), []);
      });

      test("what commits is there byte for byte, with all that was said of it", async () => {
        const event: NewEvent = {
          type: "booking.confirmed",
          json: `{"a" : 1e400, "b":[-0.0, 12345678901234567890], "a": ${JSON.stringify(ODD)}} `,
          key: ODD,
          tenant: "Zürich 😀",
          version: 7,
          source: "shop \\ ' \"",
          subject: "",
          actor: "usr:1",
          correlationId: randomUUID(),
          causationId: randomUUID(),
          traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
          aggregateVersion: 9007199254740993n,
          strictKey: true,
          headers: { [ODD]: "Zürich", "": "" },
        };
        const { id, new: isNew } = await driver.transaction((tx) => emit(tx, { ...event, key: `${ODD}${driver.name}` }));
        assert.equal(isNew, true);
        const { headers, ...row } = (await stored(driver, id))!;
        assert.deepEqual(JSON.parse(headers), event.headers);
        assert.deepEqual(row, {
          type: event.type, key: `${ODD}${driver.name}`, tenant: event.tenant, version: 7, source: event.source, subject: "",
          actor: event.actor, aggregate: "9007199254740993", correlation: event.correlationId, causation: event.causationId,
          trace: event.traceparent, content: "application/json", hex: hex(event.json!), codec: null, seq: "1",
        });
      });

      test("a value is written as JSON, and bytes stay bytes", async () => {
        const bytes = randomBytes(300);
        const payloads: [unknown, string][] = [
          [{ guest: ODD, n: [1, null, true] }, JSON.stringify({ guest: ODD, n: [1, null, true] })],
          ["text", '"text"'],
          [null, "null"],
          [0, "0"],
        ];
        for (const [payload, text] of payloads) {
          const { id } = await driver.transaction((tx) => emit(tx, { type: "a", payload }));
          assert.equal((await stored(driver, id))!.hex, hex(text));
        }
        const { id } = await driver.transaction((tx) =>
          emit(tx, { type: "a", bytes, contentType: "application/cbor", codecKey: "k/1", digest: randomBytes(32), dedup: randomUUID() }),
        );
        const { hex: kept, content, codec } = (await stored(driver, id))!;
        assert.deepEqual([kept, content, codec], [bytes.toString("hex"), "application/cbor", "k/1"]);
      });

      test("the same intent twice is one event, and another one under its key is a conflict that aborts nothing", async () => {
        const dedup = randomUUID();
        const first = await driver.transaction((tx) => emit(tx, { type: "a", payload: 1, dedup }));
        const again = await driver.transaction((tx) => emit(tx, { type: "a", payload: 1, dedup }));
        assert.deepEqual(again, { id: first.id, new: false });
        const other = await driver.transaction(async (tx) => {
          const refused = await emit(tx, { type: "a", payload: 2, dedup }).catch((error: unknown) => error);
          assert.ok(refused instanceof Conflict, String(refused));
          assert.equal(refused.first, first.id);
          return emit(tx, { type: "a", payload: 3 });
        });
        assert.ok(await stored(driver, other.id), "the transaction went on after the conflict, and committed");
      });

      test("what was accepted too long ago to compare is expired, and never new", async () => {
        const dedup = randomUUID();
        await driver.transaction((tx) => emit(tx, { type: "a", payload: 1, dedup }));
        await driver.query("update outlast._dedup set taken_at = taken_at - interval '31 days' where key = $1", [dedup]);
        await assert.rejects(driver.transaction((tx) => emit(tx, { type: "a", payload: 1, dedup })), Expired);
      });

      test("an id of the caller's is kept, and is a key too", async () => {
        const id = uuid7(Date.now());
        const twice = [1, 1].map(() => driver.transaction((tx) => emit(tx, { type: "a", payload: 1, id })));
        assert.deepEqual((await Promise.all(twice)).map((one) => one.new).sort(), [false, true]);
        await assert.rejects(driver.transaction((tx) => emit(tx, { type: "a", payload: 2, id })), Conflict);
      });

      test("whatever is refused has a class of its own, and nothing of the transaction is kept", async () => {
        const refused: [NewEvent, typeof OutlastError, string | undefined][] = [
          [{ type: "No Type", payload: 1 }, BadName, "OL005"],
          [{ type: "a", payload: 1, tenant: "a\nb" }, BadName, "OL005"],
          [{ type: "a", payload: 1, version: 0 }, BadName, "OL005"],
          [{ type: "a", payload: "x".repeat(262_145) }, TooLarge, "OL006"],
          [{ type: "a", json: "{" }, BadPayload, "OL007"],
          [{ type: "a", payload: "\0" }, BadPayload, "OL007"],
          [{ type: "a", payload: 1, id: randomUUID() }, BadId, "OL008"],
          // Not sent at all:
          [{ type: "a", payload: 1, key: "\0" }, BadName, undefined],
          [{ type: "a", payload: 1, key: "\ud800" }, BadName, undefined],
          [{ type: "a", payload: 1, version: 1.5 }, BadName, undefined],
          [{ type: "a", payload: 1, aggregateVersion: 2n ** 63n }, BadName, undefined],
          [{ type: "a", payload: 1, correlationId: "7" }, BadName, undefined],
          [{ type: "a", payload: 1n }, BadPayload, undefined],
          [{ type: "a", payload: undefined }, BadPayload, undefined],
          [{ type: "a", json: "\"\udc00\"" }, BadPayload, undefined],
        ];
        for (const [event, expected, state] of refused) {
          const told = await driver
            .transaction(async (tx, query) => {
              await query("insert into booking values ('refused')");
              await emit(tx, event);
            })
            .catch((error: unknown) => error);
          assert.ok(told instanceof expected, `${event.type} ${String(told)}`);
          assert.equal(told.state, state);
        }
        assert.deepEqual(await driver.query("select from booking where id = 'refused'"), []);
      });

      test("many are written in their order, in one commit", async () => {
        const events = Array.from({ length: 1_234 }, (_, nth) => ({
          payload: { nth, odd: ODD },
          key: nth % 3 === 0 ? undefined : `${ODD}/${nth}`,
        }));
        const type = `many.${driver.name.replace(".", "")}`;
        const actor = "usr:1";
        const accepted = await driver.transaction((tx) => emitAll(tx, { type, tenant: "t", version: 2, actor, events }));
        const rows = await driver.query(
          `select e.id::text as id, e.key, convert_from(e.payload, 'UTF8') as text, e.tenant, e.version, e.actor
           from outlast.event e where e.type = $1 order by e.log_id`,
          [type],
        );
        assert.deepEqual(
          rows,
          events.map(({ payload, key }, nth) => ({
            id: accepted[nth]!.id, key: key ?? null, text: JSON.stringify(payload), tenant: "t", version: 2, actor,
          })),
        );
        assert.deepEqual(await driver.transaction((tx) => emitAll(tx, { type, events: [] })), []);
      });

      test("a transaction that the server has aborted cannot be committed behind our back", async () => {
        const broken = driver.transaction(async (tx, query) => {
          await query("insert into booking values ('aborted')");
          await emit(tx, { type: "No Type", payload: 1 }).catch(() => {});
        });
        await assert.rejects(broken);
        assert.deepEqual(await driver.query("select from booking where id = 'aborted'"), []);
      });
    });
  }

  test("a pool, and a connection without a transaction, are refused before anything is sent", async () => {
    const event = { type: "refused", payload: 1 };
    const pool = new pg.Pool(options());
    const client = await pool.connect();
    const sql = postgres({ host: "nowhere.invalid" });
    // @ts-expect-error: a pool of pg is no transaction, and the compiler says so too.
    await assert.rejects(emit(pool, event), NoTransaction);
    // @ts-expect-error: nor is `sql` of postgres.js.
    await assert.rejects(emit(sql, event), NoTransaction);
    await client.query("select");
    await assert.rejects(emit(client, event), NoTransaction);
    client.release();
    await pool.end();
  });

  test("whatever has a query like that of pg will do, as an ORM's transaction has with one line around it", async () => {
    const [pg] = all as [Driver];
    const { id } = await pg.transaction((_, query) =>
      emit({ query: async (text, values) => ({ rows: await query(text, values) }) }, { type: "orm", payload: 1 }),
    );
    // That one went by the same connection: its transaction is the one that committed.
    assert.ok(await stored(pg, id));
  });

  test("a database without the schema, and a login without the role, are told apart", async () => {
    const bare = nodePostgres(options());
    await assert.rejects(bare.transaction((tx) => emit(tx, { type: "a", payload: 1 })), NotMigrated);
    await bare.end();
    const [pg] = all as [Driver];
    const refused = pg.transaction(async (tx, query) => {
      await query("create role nobody_of_outlast");
      await query("set local role nobody_of_outlast");
      await emit(tx, { type: "a", payload: 1 });
    });
    await assert.rejects(refused, (error) => error instanceof NotAllowed && error.code === "OUT-0020");
  });

  test("another schema of the same server is another installation", async () => {
    const billing = nodePostgres(await migrated("billing"));
    const outlast = new Outlast("billing");
    const { id } = await billing.transaction((tx) => outlast.emit(tx, { type: "a", payload: 1 }));
    assert.equal((await billing.query("select from billing.event where id = $1", [id])).length, 1);
    await assert.rejects(billing.transaction((tx) => emit(tx, { type: "a", payload: 1 })), NotMigrated);
    await billing.end();
    assert.throws(() => new Outlast('x"; drop table y'), BadName);
  });
});

/** A version 7 UUID of this time. */
function uuid7(ms: number): string {
  const time = ms.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

// What the types refuse, beside what is refused above.
export const refusedByTheCompiler = (tx: Tx) => [
  // @ts-expect-error: bytes need their content type.
  emit(tx, { type: "a", bytes: new Uint8Array() }),
  // @ts-expect-error: one payload.
  emit(tx, { type: "a", payload: 1, json: "1" }),
  // @ts-expect-error: a payload.
  emit(tx, { type: "a" }),
];
