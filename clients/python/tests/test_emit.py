from __future__ import annotations

import asyncio
import json
import secrets
import time
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
from drivers import Driver, new_database, with_each_driver
from psycopg_pool import ConnectionPool

import outlast
import outlast.aio
from outlast import (
    Accepted,
    BadId,
    BadName,
    BadPayload,
    Conflict,
    Expired,
    Json,
    NoTransaction,
    NotAllowed,
    NotMigrated,
    Outlast,
    OutlastError,
    TooLarge,
)

ODD = '\ufeff😀e\u0301\u202e "\\\n\u2028Zürich'


async def payload_of(driver: Driver, id: UUID) -> bytes | None:
    rows = await driver.query("select e.payload from outlast.event e where e.id = $1::text::uuid", str(id))
    return bytes(rows[0][0]) if rows else None


@with_each_driver
async def test_what_is_rolled_back_leaves_nothing(driver: Driver) -> None:
    type = f"gone.{uuid4()}"
    with pytest.raises(RuntimeError, match="the business says no"):
        async with driver.transaction() as tx:
            await driver.run(tx, "insert into booking values ('gone')")
            await driver.outlast.emit(tx, type, {})
            raise RuntimeError("the business says no")
    assert await driver.query("select id from outlast.event where type = $1", type) == []
    assert await driver.query("select id from booking where id = 'gone'") == []


@with_each_driver
async def test_what_commits_is_there_byte_for_byte_with_all_that_was_said_of_it(driver: Driver) -> None:
    text = f'{{"a" : 1e400, "b":[-0.0, 12345678901234567890], "a": {json.dumps(ODD, ensure_ascii=False)}}} '
    key, correlation, causation = f"{ODD}{uuid4()}", uuid4(), uuid4()
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    headers = {ODD: "Zürich", "": ""}
    async with driver.transaction() as tx:
        accepted = await driver.outlast.emit(
            tx,
            "booking.confirmed",
            Json(text),
            key=key,
            tenant="Zürich 😀",
            version=7,
            source="shop \\ ' \" %s $1",
            subject="",
            actor="usr:1",
            correlation_id=correlation,
            causation_id=str(causation),
            traceparent=trace,
            aggregate_version=9007199254740993,
            strict_key=True,
            headers=headers,
        )
    assert accepted.new
    [[kept, *row]] = await driver.query(
        """select e.headers::text, e.type, e.key, e.tenant, e.version::int, e.source, e.subject, e.actor, e.aggregate_version,
             e.correlation_id::text, e.causation_id::text, e.traceparent, e.content_type, e.codec_key, e.key_seq
           from outlast.event e where e.id = $1::text::uuid""",
        str(accepted.id),
    )
    assert json.loads(kept) == headers
    assert row == [
        *("booking.confirmed", key, "Zürich 😀", 7, "shop \\ ' \" %s $1", "", "usr:1", 9007199254740993),
        *(str(correlation), str(causation), trace, "application/json", None, 1),
    ]
    assert await payload_of(driver, accepted.id) == text.encode()


@with_each_driver
async def test_a_value_is_written_as_json_and_bytes_stay_bytes(driver: Driver) -> None:
    payloads: list[tuple[object, str]] = [
        ({"guest": ODD, "n": [1, None, True]}, json.dumps({"guest": ODD, "n": [1, None, True]}, ensure_ascii=False)),
        ("text", '"text"'),
        (None, "null"),
        (0, "0"),
    ]
    for payload, text in payloads:
        async with driver.transaction() as tx:
            accepted = await driver.outlast.emit(tx, "a", payload)
        kept = await payload_of(driver, accepted.id)
        assert kept is not None and json.loads(kept) == json.loads(text)
        assert kept == text.replace(", ", ",").replace(": ", ":").encode()
    blob = secrets.token_bytes(300)
    async with driver.transaction() as tx:
        accepted = await driver.outlast.emit(
            tx, "a", blob, content_type="application/cbor", codec_key="k/1", digest=secrets.token_bytes(32), dedup=str(uuid4())
        )
    assert await payload_of(driver, accepted.id) == blob
    rows = await driver.query(
        "select e.content_type, e.codec_key from outlast.event e where e.id = $1::text::uuid", str(accepted.id)
    )
    assert rows == [("application/cbor", "k/1")]


@with_each_driver
async def test_the_same_intent_twice_is_one_event_and_another_under_its_key_a_conflict_that_aborts_nothing(
    driver: Driver,
) -> None:
    dedup = str(uuid4())
    async with driver.transaction() as tx:
        first = await driver.outlast.emit(tx, "a", 1, dedup=dedup)
    async with driver.transaction() as tx:
        assert await driver.outlast.emit(tx, "a", 1, dedup=dedup) == Accepted(first.id, new=False)
    async with driver.transaction() as tx:
        with pytest.raises(Conflict) as refused:
            await driver.outlast.emit(tx, "a", 2, dedup=dedup)
        assert refused.value.first == first.id
        other = await driver.outlast.emit(tx, "a", 3)
    assert await payload_of(driver, other.id) == b"3", "the transaction went on after the conflict, and committed"


@with_each_driver
async def test_what_was_accepted_too_long_ago_to_compare_is_expired_and_never_new(driver: Driver) -> None:
    dedup = str(uuid4())
    async with driver.transaction() as tx:
        await driver.outlast.emit(tx, "a", 1, dedup=dedup)
        aged = "update outlast._dedup set taken_at = taken_at - interval '31 days' where key = $1 returning 1"
        assert await driver.run(tx, aged, dedup) == [(1,)]
        with pytest.raises(Expired):
            await driver.outlast.emit(tx, "a", 1, dedup=dedup)


@with_each_driver
async def test_an_id_of_the_callers_is_kept_and_is_a_key_too(driver: Driver) -> None:
    id = uuid7()
    for new in (True, False):
        async with driver.transaction() as tx:
            assert await driver.outlast.emit(tx, "a", 1, id=id) == Accepted(id, new)
    with pytest.raises(Conflict):
        async with driver.transaction() as tx:
            await driver.outlast.emit(tx, "a", 2, id=id)


@with_each_driver
async def test_whatever_is_refused_has_a_class_of_its_own_and_nothing_of_the_transaction_is_kept(driver: Driver) -> None:
    refused: list[tuple[tuple[str, Any], dict[str, Any], type[OutlastError], str | None]] = [
        (("No Type", 1), {}, BadName, "OL005"),
        (("a", 1), {"tenant": "a\nb"}, BadName, "OL005"),
        (("a", 1), {"version": 0}, BadName, "OL005"),
        (("a", "x" * 262_145), {}, TooLarge, "OL006"),
        (("a", Json("{")), {}, BadPayload, "OL007"),
        (("a", "\0"), {}, BadPayload, "OL007"),
        (("a", 1), {"id": uuid4()}, BadId, "OL008"),
        # Not sent at all:
        (("a", 1), {"key": "\0"}, BadName, None),
        (("a", 1), {"key": "\ud800"}, BadName, None),
        (("a", 1), {"key": 7}, BadName, None),
        (("a", 1), {"version": 1.5}, BadName, None),
        (("a", 1), {"aggregate_version": 1 << 63}, BadName, None),
        (("a", 1), {"correlation_id": "7"}, BadName, None),
        (("a", {1, 2}), {}, BadPayload, None),
        (("a", float("nan")), {}, BadPayload, None),
        (("a", "\udc00"), {}, BadPayload, None),
        (("a", b""), {}, BadName, None),
        (("a", 1), {"content_type": "application/cbor"}, BadName, None),
    ]
    for args, about, expected, state in refused:
        with pytest.raises(expected) as told:
            async with driver.transaction() as tx:
                await driver.run(tx, "insert into booking values ('refused')")
                await driver.outlast.emit(tx, *args, **about)
        assert told.value.state == state, told.value
    assert await driver.query("select id from booking where id = 'refused'") == []
    with pytest.raises(TypeError, match="'tennant'"):
        async with driver.transaction() as tx:
            await driver.outlast.emit(tx, "a", 1, tennant="t")


@with_each_driver
async def test_many_are_written_in_their_order_in_one_commit(driver: Driver) -> None:
    payloads = [{"nth": nth, "odd": ODD} for nth in range(1_234)]
    keys = [None if nth % 3 == 0 else f"{ODD}/{nth}" for nth in range(1_234)]
    type = f"many.{uuid4()}"
    async with driver.transaction() as tx:
        accepted = await driver.outlast.emit_all(tx, type, payloads, keys, tenant="t", version=2, actor="usr:1")
        assert await driver.outlast.emit_all(tx, type, []) == []
    rows = await driver.query(
        """select e.id::text, e.key, convert_from(e.payload, 'UTF8'), e.tenant, e.version::int, e.actor
           from outlast.event e where e.type = $1 order by e.log_id""",
        type,
    )
    assert [(id, key, json.loads(text), *rest) for id, key, text, *rest in rows] == [
        (str(one.id), key, payload, "t", 2, "usr:1") for one, key, payload in zip(accepted, keys, payloads)
    ]
    with pytest.raises(BadName, match="2 payloads and 1 keys"):
        async with driver.transaction() as tx:
            await driver.outlast.emit_all(tx, type, [1, 2], ["k"])


@with_each_driver
async def test_a_pool_and_a_connection_without_a_transaction_are_refused(driver: Driver) -> None:
    with pytest.raises(NoTransaction):
        await driver.outlast.emit(driver.database, "refused", 1)


def test_a_connection_that_commits_each_statement_is_refused(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        with pytest.raises(NoTransaction):
            outlast.emit(connection, "refused", 1)
        with connection.transaction():
            outlast.emit(connection, "a", 1)
    with psycopg.connect(database) as connection:
        outlast.emit(connection, "begun.by.psycopg", 1)
        connection.rollback()
        assert connection.execute("select 1 from outlast.event where type = 'begun.by.psycopg'").fetchall() == []


def test_an_awaited_connection_without_a_transaction_is_refused(database: str) -> None:
    async def body() -> None:
        plain = await asyncpg.connect(database)
        with pytest.raises(NoTransaction):
            await outlast.aio.emit(plain, "refused", 1)
        await plain.close()
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            with pytest.raises(NoTransaction):
                await outlast.aio.emit(connection, "refused", 1)
            async with connection.transaction():
                await outlast.aio.emit(connection, "a", 1)

    asyncio.run(body())


def test_a_database_without_the_schema_and_a_login_without_the_role_are_told_apart(database: str) -> None:
    with psycopg.connect(new_database(schema=None)) as connection, pytest.raises(NotMigrated):
        outlast.emit(connection, "a", 1)
    with psycopg.connect(database) as connection:
        role = f"nobody_{uuid4().hex}"
        connection.execute(f"create role {role}; set local role {role}".encode())
        with pytest.raises(NotAllowed) as refused:
            outlast.emit(connection, "a", 1)
        assert refused.value.code == "OUT-0020"


def test_another_schema_of_the_same_server_is_another_installation() -> None:
    billing = Outlast("billing")
    with psycopg.connect(new_database("billing")) as connection:
        accepted = billing.emit(connection, "a", 1)
        assert connection.execute("select id from billing.event").fetchall() == [(accepted.id,)]
        connection.commit()
        with pytest.raises(NotMigrated):
            outlast.emit(connection, "a", 1)
    with pytest.raises(BadName):
        Outlast('x"; drop table y')


def uuid7() -> UUID:
    """A version 7 UUID of now."""
    return UUID(f"{int(time.time() * 1000):012x}7{uuid4().hex[13:]}")


def refused_by_the_type_checker(
    pool: ConnectionPool[psycopg.Connection[Any]],
    sync: psycopg.Connection[Any],
    awaited: psycopg.AsyncConnection[Any],
) -> None:
    """Never called: what mypy refuses here it refuses in your code."""
    outlast.emit(pool, "a", 1)  # type: ignore[arg-type]
    outlast.emit(awaited, "a", 1)  # type: ignore[arg-type]
    outlast.aio.emit(sync, "a", 1)  # type: ignore[arg-type, unused-coroutine]
    outlast.emit(sync, "a", 1, tennant="t")  # type: ignore[call-arg]
    outlast.emit(sync, "a", 1, version="1")  # type: ignore[arg-type]
