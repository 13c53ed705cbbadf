"""What is asked of asyncpg and of psycopg's async connections: one statement, sent by the caller's own connection."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar, Union

from ._errors import NoTransaction, WrongTransaction, translate
from ._statement import Statement
from ._sync import is_idle, is_psycopg, placeholders

T = TypeVar("T")


class AsyncpgConnection(Protocol):
    """An `asyncpg.Connection`. Not a pool."""

    def is_in_transaction(self) -> bool: ...
    async def fetch(self, query: str, *args: Any) -> Any: ...


class AsyncpgPool(Protocol):
    """An `asyncpg.Pool`."""

    async def fetch(self, query: str, *args: Any) -> Any: ...


class PsycopgConnection(Protocol):
    """A `psycopg.AsyncConnection`. Not a pool."""

    @property
    def autocommit(self) -> bool: ...
    @property
    def info(self) -> Any: ...
    @property
    def pgconn(self) -> Any: ...
    async def commit(self) -> None: ...
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...


class PsycopgPool(Protocol):
    """A `psycopg_pool.AsyncConnectionPool`."""

    def connection(self) -> AbstractAsyncContextManager[Any]: ...
    async def getconn(self) -> Any: ...


Connection = Union[AsyncpgConnection, PsycopgConnection]
"""A connection inside a transaction of yours."""

Database = Union[AsyncpgConnection, AsyncpgPool, PsycopgConnection, PsycopgPool]
"""A connection without a transaction, or a pool of them: what is called with it commits at once."""


async def inside(connection: Connection, statement: Statement[T]) -> T:
    """Sends a statement in the caller's transaction; refuses what is none."""
    c: Any = connection
    if is_psycopg(c):
        open = not (c.autocommit and is_idle(c))
    else:
        open = hasattr(c, "is_in_transaction") and c.is_in_transaction()
    if not open:
        raise NoTransaction
    return await _send(c, statement)


async def alone(database: Database, statement: Statement[T]) -> T:
    """Sends a statement that must commit at once, and commits it; refuses an open transaction."""
    d: Any = database
    if hasattr(d, "getconn"):
        async with d.connection() as connection:
            return await alone(connection, statement)
    open = not is_idle(d) if is_psycopg(d) else hasattr(d, "is_in_transaction") and d.is_in_transaction()
    if open:
        raise WrongTransaction("a transaction is open on this connection: claim, fail and renew commit at once")
    if not is_psycopg(d):
        return await _send(d, statement)
    async with d.transaction():
        return await _send(d, statement)


async def _send(connection: Any, statement: Statement[T]) -> T:
    try:
        rows = await (_by_psycopg if is_psycopg(connection) else _by_asyncpg)(connection, statement)
    except Exception as error:
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error
    return statement.read([row[0] for row in rows])


async def _by_asyncpg(connection: Any, statement: Statement[Any]) -> Any:
    return await connection.fetch(statement.text, *statement.values)


async def _by_psycopg(connection: Any, statement: Statement[Any]) -> Any:
    # Not the connection's own cursor: its rows may be anything, and its placeholders too.
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(placeholders(statement), statement.values)
        return await cursor.fetchall()
