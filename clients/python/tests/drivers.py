"""A migrated database for each test file, and the drivers behind one face, so that one test tries all of them."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import outlast
import outlast.aio


class Driver:
    """What a test does with a driver: its own statements, and those of the package on the same connection."""

    name: str
    database: Any
    """What claims are made with."""
    outlast: Any
    """The functions of the package, each awaited."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A connection in a transaction: commits, and rolls back what raises."""
        raise NotImplementedError

    async def run(self, connection: Any, sql: str, *args: str) -> list[tuple[Any, ...]]:
        """A statement of the test's own, with `$1`…"""
        raise NotImplementedError

    async def query(self, sql: str, *args: str) -> list[tuple[Any, ...]]:
        """The same in a transaction of its own."""
        async with self.transaction() as connection:
            return await self.run(connection, sql, *args)


class Awaited:
    """Functions that need no awaiting, for tests that await all."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        function = getattr(self._functions, name)

        async def awaited(*args: Any, **named: Any) -> Any:
            return function(*args, **named)

        return awaited


def dollars(sql: str) -> str:
    for nth in range(9, 0, -1):
        sql = sql.replace(f"${nth}", "%s")
    return sql


class Psycopg(Driver):
    name = "psycopg"
    outlast = Awaited(outlast)

    def __init__(self, pool: ConnectionPool[psycopg.Connection[dict[str, Any]]]) -> None:
        self.database = pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        with self.database.connection() as connection, connection.transaction():
            yield connection

    async def run(self, connection: Any, sql: str, *args: str) -> list[tuple[Any, ...]]:
        cursor = connection.execute(dollars(sql), args)
        return [tuple(row.values()) for row in cursor.fetchall()] if cursor.description else []


class PsycopgAsync(Driver):
    name = "psycopg async"
    outlast = outlast.aio

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[dict[str, Any]]]) -> None:
        self.database = pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self.database.connection() as connection, connection.transaction():
            yield connection

    async def run(self, connection: Any, sql: str, *args: str) -> list[tuple[Any, ...]]:
        cursor = await connection.execute(dollars(sql), args)
        return [tuple(row.values()) for row in await cursor.fetchall()] if cursor.description else []


class Asyncpg(Driver):
    name = "asyncpg"
    outlast = outlast.aio

    def __init__(self, pool: Any) -> None:
        self.database = pool

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self.database.acquire() as connection, connection.transaction():
            yield connection

    async def run(self, connection: Any, sql: str, *args: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.fetch(sql, *args)]


POOLED = " pooled"
"""After the name of a driver: through PgBouncer in transaction mode."""


def pooled(url: str) -> str | None:
    """The same database through PgBouncer; none where there is none, which was said when the tests were started."""
    folder = os.environ.get("OUTLAST_TEST_POOLED")
    if not folder:
        return None
    database = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    return as_url({"dbname": database, "host": folder, "port": "6432", "user": "postgres"})


@asynccontextmanager
async def opened(kind: str, url: str) -> AsyncIterator[Driver]:
    # Rows of another shape than the package's own statements expect: it must not mind.
    rows: dict[str, Any] = {"row_factory": dict_row}
    cached = {}
    if kind.endswith(POOLED):
        kind = kind.removesuffix(POOLED)
        url = pooled(url) or pytest.skip("PgBouncer is missing")
        # A statement that a session has prepared is not there in the next transaction.
        rows["prepare_threshold"] = None
        cached["statement_cache_size"] = 0
    if kind == Psycopg.name:
        with ConnectionPool(url, kwargs=rows, min_size=1, max_size=3, open=True) as pool:
            yield Psycopg(pool)  # type: ignore[arg-type]
    elif kind == PsycopgAsync.name:
        async with AsyncConnectionPool(url, kwargs=rows, min_size=1, max_size=3, open=False) as opened_pool:
            yield PsycopgAsync(opened_pool)  # type: ignore[arg-type]
    else:
        pool = await asyncpg.create_pool(url, min_size=1, max_size=3, **cached)
        try:
            yield Asyncpg(pool)
        finally:
            await pool.close()


def with_each_driver(test: Callable[[Driver], Awaitable[None]]) -> Callable[..., None]:
    """Runs a test once for each driver, and once more through a pooler."""
    names = [Psycopg.name, PsycopgAsync.name, Asyncpg.name]

    @pytest.mark.parametrize("kind", [*names, *(name + POOLED for name in names)])
    def run(kind: str, database: str) -> None:
        async def body() -> None:
            async with opened(kind, database) as driver:
                await test(driver)

        asyncio.run(asyncio.wait_for(body(), 60))

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    run.__module__ = test.__module__
    return run


def server() -> str:
    url = os.environ.get("OUTLAST_TEST_PG")
    assert url, "OUTLAST_TEST_PG names a server: ./run clients sets it"
    return url


def new_database(schema: str | None = "outlast") -> str:
    """The connection string of a new database, with a schema of Outlast in it or without."""
    name = f"clients_{uuid4().hex}"
    with psycopg.connect(server(), autocommit=True) as admin:
        admin.execute(f"create database {name}".encode())
        params = psycopg.conninfo.conninfo_to_dict(admin.info.dsn) | {"dbname": name}
        if admin.info.password:
            params["password"] = admin.info.password
    url = as_url(params)
    if schema is not None:
        program = os.environ.get("OUTLAST_TEST_PROGRAM")
        assert program, "OUTLAST_TEST_PROGRAM names the program outlast: ./run clients sets it"
        subprocess.run([program, "migrate", "--schema", schema, "--database", url], check=True, capture_output=True)
    return url


def as_url(params: dict[str, Any]) -> str:
    """What every driver and the program understand."""
    from urllib.parse import quote, urlencode

    query = {k: v for k, v in params.items() if k in ("host", "port", "user", "password")}
    return f"postgresql:///{quote(params['dbname'])}?{urlencode(query)}"


@functools.cache
def migrated() -> str:
    """One for all tests of this run, with a table `booking (id text)`."""
    url = new_database()
    with psycopg.connect(url) as connection:
        connection.execute("create table booking (id text primary key)")
    return url
