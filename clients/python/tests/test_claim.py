from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import UUID, uuid4

import pytest
from drivers import Driver, Psycopg, with_each_driver

from outlast import (
    AlreadySealed,
    BadName,
    Claimed,
    Failure,
    Json,
    LeaseLost,
    NotInClaim,
    NoTransaction,
    OutlastError,
    UnknownConsumer,
    WrongTransaction,
)


async def claimed(driver: Driver, n: int) -> tuple[list[Claimed], str]:
    """A consumer of a type of its own, with so many events, claimed."""
    consumer = f"c.{uuid4()}"
    await driver.outlast.register(driver.database, consumer, [consumer])
    async with driver.transaction() as tx:
        await driver.outlast.emit_all(tx, consumer, [{"nth": nth} for nth in range(n)], [f"k/{nth}" for nth in range(n)])
    events: list[Claimed] = await driver.outlast.claim(driver.database, consumer, n=n, holder="test")
    assert len(events) == n
    return events, consumer


async def lapse(driver: Driver, token: UUID) -> None:
    """Ends the time of a lease, as if its owner had slept."""
    sql = "update outlast._lease set expires_at = outlast.clock() - interval '1 s' where token = $1::text::uuid returning 1"
    assert await driver.query(sql, str(token)) == [(1,)]


async def seal(driver: Driver, row: str, event: Claimed) -> None:
    """The sealing transaction of a handler, with a row of its own."""
    async with driver.transaction() as tx:
        await driver.run(tx, "insert into booking values ($1)", row)
        await driver.outlast.complete(tx, event.token, event.id)


async def booked(driver: Driver, row: str) -> int:
    return len(await driver.query("select id from booking where id = $1", row))


async def outcomes(driver: Driver, consumer: str) -> list[tuple[Any, ...]]:
    return await driver.query("select p.outcome, p.reason from outlast.processed p where p.consumer = $1", consumer)


def refused(expected: type[OutlastError], state: str) -> Any:
    return pytest.raises(expected, check=lambda error: error.state == state)


@with_each_driver
async def test_what_is_claimed_is_what_was_emitted_byte_for_byte(driver: Driver) -> None:
    consumer = f"c.{uuid4()}"
    await driver.outlast.register(driver.database, consumer, [consumer], start="now", ordered=False, lanes=4)
    text = '{"guest" : "Zürich 😀\\u0007", "n":1e3}'
    async with driver.transaction() as tx:
        accepted = await driver.outlast.emit(tx, consumer, Json(text), key="\ufeffk", tenant="Zürich", version=3)
    [event] = await driver.outlast.claim(driver.database, consumer, lease_ms=5_000)
    expected = Claimed(event.token, accepted.id, "\ufeffk", "Zürich", 1, 3, text.encode(), "application/json")
    assert event == expected
    assert event.json() == {"guest": "Zürich 😀\x07", "n": 1000.0}
    assert str(event.token) not in repr(event)
    assert await driver.outlast.claim(driver.database, consumer) == [], "nothing else is due"


@with_each_driver
async def test_a_completion_and_the_rows_beside_it_are_one_commit(driver: Driver) -> None:
    [event], consumer = await claimed(driver, 1)
    with pytest.raises(RuntimeError, match="the business says no"):
        async with driver.transaction() as tx:
            await driver.outlast.complete(tx, event.token, event.id)
            raise RuntimeError("the business says no")
    assert await outcomes(driver, consumer) == []
    await seal(driver, str(event.id), event)
    assert await outcomes(driver, consumer) == [("done", None)]
    assert await booked(driver, str(event.id)) == 1
    assert await driver.outlast.claim(driver.database, consumer, holder="test") == []


@with_each_driver
async def test_what_needs_no_work_is_completed_with_its_reason(driver: Driver) -> None:
    [event], consumer = await claimed(driver, 1)
    async with driver.transaction() as tx:
        await driver.outlast.complete(tx, event.token, event.id, "skipped", "no such guest")
    assert await outcomes(driver, consumer) == [("skipped", "no such guest")]


@with_each_driver
async def test_an_event_that_is_completed_already_cannot_be_again_and_nothing_beside_it_commits(driver: Driver) -> None:
    [event, _], _ = await claimed(driver, 2)
    await seal(driver, f"{event.id} 1", event)
    with refused(AlreadySealed, "OL002"):
        await seal(driver, f"{event.id} 2", event)
    assert (await booked(driver, f"{event.id} 1"), await booked(driver, f"{event.id} 2")) == (1, 0)


@with_each_driver
async def test_an_event_of_another_claim_cannot_be_completed_and_nothing_beside_it_commits(driver: Driver) -> None:
    [mine], _ = await claimed(driver, 1)
    [other], _ = await claimed(driver, 1)
    with refused(NotInClaim, "OL003"):
        async with driver.transaction() as tx:
            await driver.run(tx, "insert into booking values ($1)", str(other.id))
            await driver.outlast.complete(tx, mine.token, other.id)
    assert await booked(driver, str(other.id)) == 0


@with_each_driver
async def test_who_lost_the_lease_can_neither_complete_nor_prove_renew_or_fail(driver: Driver) -> None:
    [event], consumer = await claimed(driver, 1)
    await lapse(driver, event.token)
    [taken] = await driver.outlast.claim(driver.database, consumer)
    assert (taken.id, taken.attempt) == (event.id, 2), "somebody newer has it"
    with refused(LeaseLost, "OL001"):
        await seal(driver, str(event.id), event)
    with refused(LeaseLost, "OL001"):
        async with driver.transaction() as tx:
            await driver.outlast.fence(tx, event.token)
    with refused(LeaseLost, "OL001"):
        await driver.outlast.renew(driver.database, event.token)
    with refused(LeaseLost, "OL001"):
        await driver.outlast.fail(driver.database, event.token, event.id, "retry", "late")
    assert await booked(driver, str(event.id)) == 0
    await seal(driver, str(event.id), taken)
    assert await booked(driver, str(event.id)) == 1


@with_each_driver
async def test_commit_is_impossible_after_a_refused_completion_also_for_who_swallows_the_error(driver: Driver) -> None:
    [event], _ = await claimed(driver, 1)
    try:
        async with driver.transaction() as tx:
            await driver.run(tx, "insert into booking values ($1)", str(event.id))
            with pytest.raises(LeaseLost):
                await driver.outlast.complete(tx, uuid4(), event.id)
    except Exception:
        pass  # Some drivers say so; others let COMMIT be answered by ROLLBACK.
    assert await booked(driver, str(event.id)) == 0


@with_each_driver
async def test_a_lease_is_proven_to_the_end_of_a_transaction_and_moved(driver: Driver) -> None:
    [event], consumer = await claimed(driver, 1)
    async with driver.transaction() as tx:
        await driver.outlast.fence(tx, event.token)
    until = await driver.outlast.renew(driver.database, event.token, 60_000)
    [(kept,)] = await driver.query("select extract(epoch from expires_at)::float8 from outlast.lease where consumer = $1", consumer)
    assert abs(until.timestamp() - kept) < 0.001


@with_each_driver
async def test_what_failed_is_parked_and_a_person_is_asked_about_what_is_permanent(driver: Driver) -> None:
    [first, second], consumer = await claimed(driver, 2)
    reason = 'no\0such \ud800 table: "Zürich"'
    assert await driver.outlast.fail(driver.database, first.token, first.id, "permanent", reason) == "quarantined"
    assert await driver.outlast.fail(driver.database, second.token, second.id, "retry", "later", 60_000) == "retry"
    rows = await driver.query(
        """select p.id::text, p.state, p.class, p.reason, p.next_at > outlast.clock() + interval '50 s'
           from outlast.parked p where p.consumer = $1 order by p.class""",
        consumer,
    )
    assert rows == [
        (str(first.id), "quarantined", "permanent", 'nosuch ? table: "Zürich"', None),
        (str(second.id), "retry", "retry", "later", True),
    ]
    incidents = await driver.query("select i.about::text from outlast.incident i where i.consumer = $1", consumer)
    assert incidents == [(str(first.id),)]


@with_each_driver
async def test_an_unknown_consumer_a_token_that_is_none_and_a_wrong_transaction_are_told_apart(driver: Driver) -> None:
    with refused(UnknownConsumer, "OL012"):
        await driver.outlast.claim(driver.database, "nobody")
    with refused(BadName, "OL005"):
        await driver.outlast.claim(driver.database, "nobody", n=0)
    with pytest.raises(BadName):
        await driver.outlast.fail(driver.database, "7", uuid4(), "retry", "")
    with pytest.raises(WrongTransaction):
        async with driver.transaction() as tx:
            await driver.outlast.claim(tx, "nobody")
    with pytest.raises(NoTransaction):
        await driver.outlast.complete(driver.database, uuid4(), uuid4())


def worker(driver: Driver) -> tuple[Any, Any]:
    """The event that stops a worker, and how a handler is given to it."""
    if driver.name != Psycopg.name:
        return asyncio.Event(), lambda handler: handler
    # Its handler is no coroutine; those of the tests are, and end without having waited for anything.

    def plain(handler: Any) -> Any:
        def run(event: Claimed) -> None:
            try:
                handler(event).send(None)
            except StopIteration:
                pass

        return run

    return threading.Event(), plain


@with_each_driver
async def test_a_worker_hands_out_each_event_once_and_records_what_its_handler_raises(driver: Driver) -> None:
    consumer = f"c.{uuid4()}"
    await driver.outlast.register(driver.database, consumer, [consumer], ordered=True, lanes=1)
    # Of key `b` the second is wrong: what follows it waits behind it, and is not handed out.
    given = ["a?", "b", "b!", "a", "b", "a", "c!", "c"]
    async with driver.transaction() as tx:
        await driver.outlast.emit_all(tx, consumer, given, [name[0] for name in given])
    seen: list[object] = []
    stop, adapted = worker(driver)

    async def handler(event: Claimed) -> None:
        seen.append(event.json())
        if len(seen) == 6:
            stop.set()
        if seen[-1] == "b!":
            raise Failure("permanent", "no such guest")
        if seen[-1] == "c!":
            raise ValueError(f"try {event.attempt} failed")
        async with driver.transaction() as tx:
            await driver.outlast.complete(tx, event.token, event.id)
        if seen[-1] == "a?":
            raise OSError("the commit took place, and was not answered")

    await driver.outlast.work(driver.database, consumer, adapted(handler), stop=stop, n=100)
    assert seen == ["a?", "b", "b!", "a", "a", "c!"]
    assert len(await outcomes(driver, consumer)) == 4
    parked = await driver.query("select p.state, p.reason from outlast.parked p where p.consumer = $1 order by p.log_id", consumer)
    assert parked == [
        ("quarantined", "no such guest"),
        ("behind", "an earlier event of its key is parked"),
        ("retry", "try 1 failed"),
        ("behind", "an earlier event of its key is parked"),
    ]


@with_each_driver
async def test_a_worker_leaves_what_somebody_newer_owns_and_goes_on_with_what_is_due(driver: Driver) -> None:
    consumer = f"c.{uuid4()}"
    await driver.outlast.register(driver.database, consumer, [consumer])
    async with driver.transaction() as tx:
        await driver.outlast.emit_all(tx, consumer, [1, 2])
    stop, adapted = worker(driver)
    told: list[Exception] = []
    tries = 0

    async def handler(event: Claimed) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            await lapse(driver, event.token)
            # Taken over by another runner, which does the first of the two and dies.
            first, _ = await driver.outlast.claim(driver.database, consumer)
            await seal(driver, str(first.id), first)
            await lapse(driver, first.token)
        await seal(driver, f"{event.id} again", event)
        stop.set()

    await driver.outlast.work(driver.database, consumer, adapted(handler), stop=stop, idle_ms=1, on_error=told.append)
    assert tries == 2
    assert [type(error) for error in told] == [LeaseLost]
    assert len(await outcomes(driver, consumer)) == 2
    with pytest.raises(UnknownConsumer):
        stop.clear()
        await driver.outlast.work(driver.database, "nobody", adapted(handler), stop=stop)
