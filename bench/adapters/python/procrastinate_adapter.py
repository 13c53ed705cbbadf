"""procrastinate as a contestant: see bench/README.md."""

import asyncio
from contextlib import asynccontextmanager, suppress

import procrastinate
import psycopg

from contract import NOTE, chunks, go, monotonic, payload, run, stopped, version

TASK = "unit"
BUSINESS = "insert into business (note) values (%s)"


class Procrastinate:
    def describe(self):
        return {
            "name": "procrastinate",
            "version": version("procrastinate"),
            "language": "python",
            "default": "the README's first page: PsycopgConnector() (a pool of 4), run_worker_async(), LISTEN and a poll of 5 s; "
            "concurrency from BENCH_CONCURRENCY instead of its 1. In both profiles the periodic task of "
            "howto/production/retry_stalled_jobs, update_heartbeat_interval = a third of BENCH_LEASE, "
            "seconds_since_heartbeat = stalled_worker_timeout = BENCH_LEASE, looked at as often as the heartbeat",
            "best": "as default with a pool of 10 (howto/basics/connector: max_size); it has neither batches nor local queues: each "
            "job is fetched, and finished, by a statement of its own",
            "fenced": False,
            "history": True,
            "transactional": True,
            "left": f"select count(*) from procrastinate_jobs where task_name = '{TASK}' and status <> 'succeeded'",
            "done_at": "select (args->>'n')::bigint, (extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000000)::bigint "
            f"from procrastinate_jobs where task_name = '{TASK}' and status = 'succeeded'",
            "stale": "accepted while its successor is at it: finish_job asks for the id and the status todo or doing, not for the "
            "worker; refused after the successor has finished",
            "skips": {},
        }

    async def install(self, env):
        app, _ = application(env)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def fill(self, env):
        app, unit = application(env)
        async with app.open_async():
            for _ in range(env.consumers):
                for numbers in chunks(env.units, 5_000):
                    await unit.batch_defer_async(*[payload(n, env.payload) for n in numbers])

    async def writer(self, env, until):
        numbers = range(1, env.batch + 1)
        transactions = 0
        async with connected(env) as (connection, unit):
            while monotonic() < until:
                await transaction(env, unit, connection, numbers)
                transactions += 1
        return transactions

    @asynccontextmanager
    async def client(self, env):
        async with connected(env) as (connection, unit):
            yield lambda n: transaction(env, unit, connection, [n])

    async def work(self, env, handler):
        app, _ = application(env, handler)
        beat = max(0.5, env.lease / 3)
        async with app.open_async():
            await go()
            worker = asyncio.create_task(
                app.run_worker_async(
                    concurrency=env.concurrency,
                    update_heartbeat_interval=beat,
                    stalled_worker_timeout=env.lease,
                    install_signal_handlers=False,
                )
            )
            await asyncio.wait([worker, asyncio.ensure_future(stopped())], return_when=asyncio.FIRST_COMPLETED)
            # Stops in good order: jobs that have begun are finished.
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker


def application(env, handler=None):
    """The application and its task; with a handler also the task that retries what dead workers left."""
    pool = {"max_size": 10} if env.best else {}
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=env.url, **pool))

    @app.task(name=TASK)
    async def unit(n, pad):
        await handler.call(n)

    if handler:
        # Cron with seconds as its sixth field.
        @app.periodic(cron=f"* * * * * */{min(30, max(1, round(env.lease / 3)))}")
        @app.task(name="retry_stalled_jobs", queueing_lock="retry_stalled_jobs", pass_context=True)
        async def retry_stalled_jobs(context, timestamp):
            for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=env.lease):
                await app.job_manager.retry_job(job)

    return app, unit


@asynccontextmanager
async def connected(env):
    """A caller's own connection, and the task to defer by it."""
    app, _ = application(env)
    async with app.open_async(), await psycopg.AsyncConnection.connect(env.url, autocommit=True) as connection:
        # What is deferred goes into this connection's transaction: Task.configure.
        yield connection, app.configure_task(TASK, connection=connection)


async def transaction(env, unit, connection, numbers):
    """A row of business and these units, together."""
    if env.emit == "joined":
        async with connection.pipeline(), connection.transaction():
            await connection.execute(BUSINESS, [NOTE])
            await defer(env, unit, numbers)
        return
    async with connection.transaction():
        await connection.execute(BUSINESS, [NOTE])
        if env.emit == "own":
            await defer(env, unit, numbers)


async def defer(env, unit, numbers):
    if len(numbers) == 1:
        await unit.defer_async(**payload(numbers[0], env.payload))
    else:
        await unit.batch_defer_async(*[payload(n, env.payload) for n in numbers])


if __name__ == "__main__":
    run(Procrastinate())
