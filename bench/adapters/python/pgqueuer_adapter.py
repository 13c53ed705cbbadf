"""pgqueuer as a contestant: see bench/README.md."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from contract import NOTE, chunks, go, monotonic, payload, run, stopped, version

ENTRYPOINT = "unit"


class Pgqueuer:
    def describe(self):
        return {
            "name": "pgqueuer",
            "version": version("pgqueuer"),
            "language": "python",
            "default": "the README's quick start: one asyncpg connection, run() with its batch_size 10, LISTEN; "
            "max_concurrent_tasks from BENCH_CONCURRENCY (at least its 2 * batch_size), else it has no limit; heartbeat_timeout is "
            "BENCH_LEASE and dequeue_timeout a quarter of it (at most its 30 s) instead of 30 s each, in both profiles",
            "best": "guides/performance-tuning: batch_size 500 (completions are buffered by as many) and max_concurrent_tasks twice "
            "that, the least it takes, a direct connection for the queue manager, `pgq autovac`; uvloop as its command line has "
            "it, in both profiles; handlers at most BENCH_CONCURRENCY at once. Tables are durable, its default: what is faster "
            "loses jobs or their history in a crash",
            "fenced": False,
            "history": True,
            "transactional": True,
            "left": "select count(*) from pgqueuer",
            # The log keeps no payload. A job's id is its n where the units came one after another into an empty database; and a log
            # row that was counted into the statistics since then was written again.
            "done_at": "select job_id, (extract(epoch from case when aggregated then created else pg_xact_commit_timestamp(xmin) end) "
            "* 1000000)::bigint from pgqueuer_log where status = 'successful'",
            "stale": "accepted: completion deletes the job by its id alone, whoever picked it by now",
            "skips": {"joined": "enqueue() is a statement of its own, and its driver does not pipeline"},
        }

    async def install(self, env):
        async with connected() as (_, queries):
            await queries.install()
            if env.best:
                await queries.optimize_autovacuum()

    async def fill(self, env):
        async with connected() as (_, queries):
            for _ in range(env.consumers):
                for numbers in chunks(env.units, 10_000):
                    await enqueue(env, queries, numbers)

    async def writer(self, env, until):
        numbers = range(1, env.batch + 1)
        transactions = 0
        async with connected() as (connection, queries):
            while monotonic() < until:
                await transaction(env, connection, queries, numbers)
                transactions += 1
        return transactions

    @asynccontextmanager
    async def client(self, env):
        async with connected() as (connection, queries):
            yield lambda n: transaction(env, connection, queries, [n])

    async def work(self, env, handler):
        async with connected() as (connection, _):
            pgq = PgQueuer(AsyncpgDriver(connection))
            slots = asyncio.Semaphore(env.concurrency)

            @pgq.entrypoint(ENTRYPOINT)
            async def unit(job):
                async with slots:
                    await handler.call(json.loads(job.payload)["n"])

            await go()
            settings = (
                {"batch_size": 500, "max_concurrent_tasks": 1000}
                if env.best
                else {"max_concurrent_tasks": max(20, env.concurrency)}
            )
            # A dead worker's jobs are found when the queue is looked at again; nothing tells of them.
            lease, look = timedelta(seconds=env.lease), timedelta(seconds=min(30, max(0.5, env.lease / 4)))
            working = asyncio.create_task(pgq.run(heartbeat_timeout=lease, dequeue_timeout=look, **settings))
            await asyncio.wait([working, asyncio.ensure_future(stopped())], return_when=asyncio.FIRST_COMPLETED)
            # Stops in good order: jobs that have begun are finished.
            pgq.shutdown.set()
            await working


@asynccontextmanager
async def connected():
    # By PGHOST and its like, as its README does.
    connection = await asyncpg.connect()
    try:
        yield connection, Queries(AsyncpgDriver(connection))
    finally:
        await connection.close()


async def transaction(env, connection, queries, numbers):
    """A row of business and these units, together."""
    async with connection.transaction():
        await connection.execute("insert into business (note) values ($1)", NOTE)
        if env.emit == "own":
            await enqueue(env, queries, numbers)


async def enqueue(env, queries, numbers):
    payloads = [json.dumps(payload(n, env.payload), separators=(",", ":")).encode() for n in numbers]
    if len(payloads) == 1:
        await queries.enqueue(ENTRYPOINT, payloads[0])
    else:
        await queries.enqueue([ENTRYPOINT] * len(payloads), payloads, [0] * len(payloads))


if __name__ == "__main__":
    run(Pgqueuer(), loop=uvloop.run)
