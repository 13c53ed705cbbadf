"""pgmq as a contestant, through its Python client: see bench/README.md."""

import asyncio
import json
import math
import os
from contextlib import asynccontextmanager

import asyncpg
import psycopg
from pgmq import AsyncPGMQueue, install_pgmq_from_sql
from pgmq.install import get_embedded_sql_version

from contract import NOTE, chunks, go, monotonic, payload, run, stopped, version

QUEUE = "unit"
POOL = 10
JOINED = {
    False: "with business as (insert into business (note) values ($1)) select pgmq.send($2, $3::jsonb)",
    True: "with business as (insert into business (note) values ($1)) select pgmq.send_batch($2, $3::jsonb[])",
}


class Pgmq:
    def describe(self):
        # What is done is archived in one profile and deleted in the other.
        archived = os.environ.get("BENCH_PROFILE") == "default"
        return {
            "name": "pgmq",
            "version": f"{get_embedded_sql_version()} (client {version('pgmq')})",
            "language": "python",
            "default": "the quick start of its client: read() one message, archive() it when done, a pool of 10; as many consumers "
            "as the pool has connections, each asks again after the 100 ms of read_with_poll when it found nothing. vt is "
            "BENCH_LEASE instead of 30 s",
            "best": "batch operations for high throughput (README): read_with_poll() of 500 by two consumers, poll_interval_ms 10, "
            "delete_batch() instead of an archive; a batch's messages are handled side by side, at most BENCH_CONCURRENCY at once. "
            "Notifications are off: its trigger updates one and the same row for every message that is sent",
            "fenced": False,
            "history": archived,
            "transactional": True,
            "left": f"select count(*) from pgmq.q_{QUEUE}",
            "done_at": "select (message->>'n')::bigint, (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::bigint "
            f"from pgmq.a_{QUEUE}"
            if archived
            else None,
            "stale": "accepted: archive and delete take the message by its id alone, however often it was read since",
            "skips": {},
        }

    async def install(self, env):
        # The SQL that its package brings along.
        with psycopg.connect(env.url) as connection:
            install_pgmq_from_sql(conn=connection)
        async with opened() as queue:
            await queue.create_queue(QUEUE)

    async def fill(self, env):
        async with opened() as queue:
            for _ in range(env.consumers):
                for numbers in chunks(env.units, 10_000):
                    await queue.send_batch(QUEUE, [payload(n, env.payload) for n in numbers])

    async def writer(self, env, until):
        numbers = range(1, env.batch + 1)
        transactions = 0
        async with opened(1) as queue, queue.pool.acquire() as connection:
            while monotonic() < until:
                await transaction(env, queue, connection, numbers)
                transactions += 1
        return transactions

    @asynccontextmanager
    async def client(self, env):
        async with opened(1) as queue, queue.pool.acquire() as connection:
            yield lambda n: transaction(env, queue, connection, [n])

    async def work(self, env, handler):
        stop = asyncio.Event()
        consume = batches if env.best else singly
        count = 2 if env.best else min(POOL, env.concurrency)
        slots = asyncio.Semaphore(env.concurrency)
        async with opened() as queue:
            await go()
            consumers = [asyncio.create_task(consume(env, queue, handler, slots, stop)) for _ in range(count)]
            ended = asyncio.ensure_future(stopped())
            await asyncio.wait([ended, *consumers], return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await asyncio.gather(*consumers)


def visible_after(env):
    """Whole seconds."""
    return max(1, math.ceil(env.lease))


async def singly(env, queue, handler, _slots, stop):
    while not stop.is_set():
        message = await queue.read(QUEUE, vt=visible_after(env))
        if message is None:
            await asyncio.sleep(0.1)
            continue
        await handler.call(message.message["n"])
        await queue.archive(QUEUE, message.msg_id)


async def batches(env, queue, handler, slots, stop):
    async def handle(message):
        async with slots:
            await handler.call(message.message["n"])

    while not stop.is_set():
        messages = await queue.read_with_poll(QUEUE, vt=visible_after(env), qty=500, max_poll_seconds=1, poll_interval_ms=10)
        if messages:
            await asyncio.gather(*map(handle, messages))
            await queue.delete_batch(QUEUE, [message.msg_id for message in messages])


@asynccontextmanager
async def opened(size=POOL):
    # By PGHOST and its like: asyncpg does not let a URL's parameter overrule its host.
    async with asyncpg.create_pool(min_size=1, max_size=size) as pool:
        queue = AsyncPGMQueue(pool=pool, init_extension=False)
        await queue.init()
        yield queue


async def transaction(env, queue, connection, numbers):
    """A row of business and these units, together."""
    messages = [payload(n, env.payload) for n in numbers]
    async with connection.transaction():
        if env.emit == "joined":
            await joined(connection, messages)
            return
        await connection.execute("insert into business (note) values ($1)", NOTE)
        if env.emit == "own" and len(messages) == 1:
            await queue.send(QUEUE, messages[0], conn=connection)
        elif env.emit == "own":
            await queue.send_batch(QUEUE, messages, conn=connection)


async def joined(connection, messages):
    """By the SQL functions that its documentation is about, in the statement of the row."""
    texts = [json.dumps(message, separators=(",", ":")) for message in messages]
    many = len(texts) > 1
    await connection.fetch(JOINED[many], NOTE, QUEUE, texts if many else texts[0])


if __name__ == "__main__":
    run(Pgmq())
