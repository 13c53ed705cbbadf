import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, describe, test } from "node:test";

import {
  AlreadySealed, BadName, type Claimed, Failure, LeaseLost, NotInClaim, NoTransaction, UnknownConsumer, WrongTransaction,
  claim, complete, emit, emitAll, fail, fence, register, renew, work,
} from "../src/index.js";
import { type Driver, drivers } from "./database.js";

/** A consumer of a type of its own, with so many events, claimed. */
async function claimed(driver: Driver, n: number): Promise<[Claimed[], string]> {
  const consumer = `c.${randomUUID()}`;
  await register(driver.database, consumer, [consumer]);
  const events = Array.from({ length: n }, (_, nth) => ({ payload: { nth }, key: `k/${nth}` }));
  await driver.transaction((tx) => emitAll(tx, { type: consumer, events }));
  const got = await claim(driver.database, consumer, { n, holder: "test" });
  assert.equal(got.length, n);
  return [got, consumer];
}

/** Ends the time of a lease, as if its owner had slept. */
async function lapse(driver: Driver, token: string): Promise<void> {
  await driver.query("update outlast._lease set expires_at = outlast.clock() - interval '1 s' where token = $1", [token]);
}

describe("claim, complete, fail", async () => {
  const all = await drivers();
  after(() => Promise.all(all.map((driver) => driver.end())));

  for (const driver of all) {
    /** The sealing transaction of a handler, with a row of its own. */
    const seal = (row: string, token: string, id: string) =>
      driver.transaction(async (tx, query) => {
        await query("insert into booking values ($1)", [row]);
        await complete(tx, token, id);
      });
    const booked = async (row: string) => (await driver.query("select from booking where id = $1", [row])).length;
    const outcomes = (consumer: string) =>
      driver.query("select p.outcome, p.reason from outlast.processed p where p.consumer = $1 order by p.outcome", [consumer]);

    describe(driver.name, () => {
      test("what is claimed is what was emitted, byte for byte", async () => {
        const consumer = `c.${randomUUID()}`;
        await register(driver.database, consumer, [consumer], { start: "now", ordered: false, lanes: 4 });
        const json = '{"guest" : "Zürich 😀\\u0007", "n":1e400}';
        const { id } = await driver.transaction((tx) =>
          emit(tx, { type: consumer, json, key: "\ufeffk", tenant: "Zürich", version: 3 }),
        );
        const [event] = await claim(driver.database, consumer, { leaseMs: 5_000 });
        assert.deepEqual(
          { ...event, token: null },
          {
            token: null, id, key: "\ufeffk", tenant: "Zürich", attempt: 1, version: 3, payload: Buffer.from(json),
            contentType: "application/json",
          },
        );
        assert.deepEqual(await claim(driver.database, consumer), [], "nothing else is due");
      });

      test("a completion and the rows beside it are one commit", async () => {
        const [[event], consumer] = await claimed(driver, 1);
        const { token, id } = event!;
        const broken = driver.transaction(async (tx) => {
          await complete(tx, token, id);
          throw new Error("the business says no");
        });
        await assert.rejects(broken, /the business says no/);
        assert.deepEqual(await outcomes(consumer), []);
        await seal(id, token, id);
        assert.deepEqual(await outcomes(consumer), [{ outcome: "done", reason: null }]);
        assert.equal(await booked(id), 1);
        assert.deepEqual(await claim(driver.database, consumer, { holder: "test" }), []);
      });

      test("what needs no work is completed with its reason", async () => {
        const [[event], consumer] = await claimed(driver, 1);
        await driver.transaction((tx) => complete(tx, event!.token, event!.id, "skipped", "no such guest"));
        assert.deepEqual(await outcomes(consumer), [{ outcome: "skipped", reason: "no such guest" }]);
      });

      test("an event that is completed already cannot be again, and nothing beside it commits", async () => {
        const [[event]] = await claimed(driver, 2);
        const { token, id } = event!;
        await seal(`${id} 1`, token, id);
        await assert.rejects(seal(`${id} 2`, token, id), isRefusal(AlreadySealed, "OL002"));
        assert.deepEqual([await booked(`${id} 1`), await booked(`${id} 2`)], [1, 0]);
      });

      test("an event of another claim cannot be completed, and nothing beside it commits", async () => {
        const [[mine]] = await claimed(driver, 1);
        const [[other]] = await claimed(driver, 1);
        await assert.rejects(seal(other!.id, mine!.token, other!.id), isRefusal(NotInClaim, "OL003"));
        assert.equal(await booked(other!.id), 0);
      });

      test("who lost the lease can neither complete nor prove, renew or fail, and nothing beside it commits", async () => {
        const [[event], consumer] = await claimed(driver, 1);
        const { token, id } = event!;
        await lapse(driver, token);
        const [taken] = await claim(driver.database, consumer);
        assert.equal(taken?.id, id, "somebody newer has it");
        assert.equal(taken.attempt, 2);
        const lost = isRefusal(LeaseLost, "OL001");
        await assert.rejects(seal(id, token, id), lost);
        await assert.rejects(driver.transaction((tx) => fence(tx, token)), lost);
        await assert.rejects(renew(driver.database, token), lost);
        await assert.rejects(fail(driver.database, token, id, "retry", "late"), lost);
        assert.equal(await booked(id), 0);
        await seal(id, taken.token, id);
        assert.equal(await booked(id), 1);
      });

      test("COMMIT is impossible after a refused completion, also for who swallows the error", async () => {
        const [[event]] = await claimed(driver, 1);
        const swallowed = driver.transaction(async (tx, query) => {
          await query("insert into booking values ($1)", [event!.id]);
          await complete(tx, randomUUID(), event!.id).catch(() => {});
        });
        await assert.rejects(swallowed);
        assert.equal(await booked(event!.id), 0);
      });

      test("a lease is proven to the end of a transaction, and moved", async () => {
        const [[event], consumer] = await claimed(driver, 1);
        await driver.transaction((tx) => fence(tx, event!.token));
        const until = await renew(driver.database, event!.token, 60_000);
        const [row] = await driver.query(
          "select floor(extract(epoch from expires_at) * 1000)::text as ms from outlast.lease where consumer = $1", [consumer],
        );
        assert.equal(until.getTime(), Number(row!.ms));
      });

      test("what failed is parked with its class and reason, and a person is asked about what is permanent", async () => {
        const [[first, second], consumer] = await claimed(driver, 2);
        const reason = "no\0such \ud800 table: \"Zürich\"";
        assert.equal(await fail(driver.database, first!.token, first!.id, "permanent", reason), "quarantined");
        assert.equal(await fail(driver.database, second!.token, second!.id, "retry", "later", 60_000), "retry");
        const rows = await driver.query(
          `select p.id::text as id, p.state, p.class, p.reason, p.next_at > outlast.clock() + interval '50 s' as late
           from outlast.parked p where p.consumer = $1 order by p.class`,
          [consumer],
        );
        assert.deepEqual(rows, [
          { id: first!.id, state: "quarantined", class: "permanent", reason: "nosuch \ufffd table: \"Zürich\"", late: null },
          { id: second!.id, state: "retry", class: "retry", reason: "later", late: true },
        ]);
        const incidents = await driver.query("select i.about::text as about from outlast.incident i where i.consumer = $1", [consumer]);
        assert.deepEqual(incidents, [{ about: first!.id }]);
      });

      test("an unknown consumer, a token that is none, and a transaction where none may be are told apart", async () => {
        await assert.rejects(claim(driver.database, "nobody"), isRefusal(UnknownConsumer, "OL012"));
        await assert.rejects(fail(driver.database, "7", randomUUID(), "retry", ""), BadName);
        await assert.rejects(claim(driver.database, "nobody", { n: 0 }), isRefusal(BadName, "OL005"));
        const within = driver.transaction((tx) => claim(tx as never, "nobody"));
        await assert.rejects(within, WrongTransaction);
        await assert.rejects(complete(driver.database as never, randomUUID(), randomUUID()), NoTransaction);
      });

      test("a worker hands out each event once, and records what its handler throws", async () => {
        const consumer = `c.${randomUUID()}`;
        await register(driver.database, consumer, [consumer], { ordered: true, lanes: 1 });
        // Of key `b` the second is wrong: what follows it waits behind it, and is not handed out.
        const events = ["a?", "b", "b!", "a", "b", "a", "c!", "c"].map((given) => ({ payload: given, key: given[0] }));
        await driver.transaction((tx) => emitAll(tx, { type: consumer, events }));
        const seen: unknown[] = [];
        const stop = new AbortController();
        await work(
          driver.database,
          consumer,
          async ({ token, id, payload, attempt }) => {
            const given = JSON.parse(payload.toString()) as string;
            seen.push(given);
            if (seen.length === 6) stop.abort();
            if (given === "b!") throw new Failure("permanent", "no such guest");
            // Its commit takes place, and is not answered.
            if (given === "a?") await driver.transaction((tx) => complete(tx, token, id));
            if (given === "a?") throw new Error("connection terminated");
            if (given === "c!") throw new Error(`try ${attempt} failed`);
            await driver.transaction((tx) => complete(tx, token, id));
          },
          { n: 100, signal: stop.signal },
        );
        assert.deepEqual(seen, ["a?", "b", "b!", "a", "a", "c!"]);
        assert.equal((await outcomes(consumer)).length, 4);
        const parked = await driver.query(
          "select p.state, p.class, p.reason from outlast.parked p where p.consumer = $1 order by p.log_id", [consumer],
        );
        assert.deepEqual(parked.map((row) => [row["state"], row["reason"]]), [
          ["quarantined", "no such guest"], ["behind", "an earlier event of its key is parked"], ["retry", "try 1 failed"], ["behind", "an earlier event of its key is parked"],
        ]);
      });

      test("a worker leaves what somebody newer owns, and goes on with what is due", async () => {
        const consumer = `c.${randomUUID()}`;
        await register(driver.database, consumer, [consumer]);
        await driver.transaction((tx) => emitAll(tx, { type: consumer, events: [{ payload: 1 }, { payload: 2 }] }));
        const stop = new AbortController();
        const told: unknown[] = [];
        let tries = 0;
        await work(
          driver.database,
          consumer,
          async ({ token, id }) => {
            tries += 1;
            if (tries === 1) {
              await lapse(driver, token);
              // Taken over by another runner, which does the first of the two and dies.
              const [first] = await claim(driver.database, consumer);
              await seal(first!.id, first!.token, first!.id);
              await lapse(driver, first!.token);
            }
            await seal(id, token, id);
            stop.abort();
          },
          { idleMs: 1, signal: stop.signal, onError: (error) => told.push(error) },
        );
        assert.equal(tries, 2);
        assert.ok(told.length === 1 && told[0] instanceof LeaseLost, String(told));
        assert.equal((await outcomes(consumer)).length, 2);
        await assert.rejects(work(driver.database, "nobody", async () => {}), UnknownConsumer);
      });
    });
  }
});

function isRefusal(expected: typeof LeaseLost, state: string): (error: unknown) => boolean {
  return (error) => error instanceof expected && error.state === state;
}
