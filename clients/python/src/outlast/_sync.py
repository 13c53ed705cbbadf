"""What is asked of psycopg 3: one statement, sent by the caller's own connection."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, Union

from ._errors import NoTransaction, WrongTransaction, translate
from ._statement import Statement

T = TypeVar("T")


class Connection(Protocol):
    """A `psycopg.Connection`. Not a pool."""

    @property
    def autocommit(self) -> bool: ...
    @property
    def info(self) -> Any: ...
    @property
    def pgconn(self) -> Any: ...
    def commit(self) -> None: ...
    def transaction(self) -> AbstractContextManager[Any]: ...


class Pool(Protocol):
    """A `psycopg_pool.ConnectionPool`."""

    def connection(self) -> AbstractContextManager[Any]: ...
    def getconn(self) -> Any: ...


Database = Union[Connection, Pool]
"""A connection without a transaction, or a pool of them: what is called with it commits at once."""

IDLE = 0
"""`PQTRANS_IDLE` of libpq."""


def inside(connection: Connection, statement: Statement[T]) -> T:
    """Sends a statement in the caller's transaction; refuses what is none.

    Without autocommit psycopg begins one with the first statement.
    """
    if not is_psycopg(connection) or (connection.autocommit and is_idle(connection)):
        raise NoTransaction
    return _send(connection, statement)


def alone(database: Database, statement: Statement[T]) -> T:
    """Sends a statement that must commit at once, and commits it; refuses an open transaction."""
    d: Any = database
    if not is_psycopg(d):
        with d.connection() as connection:
            return alone(connection, statement)
    if not is_idle(d):
        raise WrongTransaction("a transaction is open on this connection: claim, fail and renew commit at once")
    with d.transaction():
        return _send(d, statement)


def _send(connection: Any, statement: Statement[T]) -> T:
    # Not the connection's own cursor: its rows may be anything, and its placeholders too.
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    try:
        with Cursor(connection, row_factory=tuple_row) as cursor:
            rows = cursor.execute(placeholders(statement), statement.values).fetchall()
    except Exception as error:
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error
    return statement.read([row[0] for row in rows])


def is_psycopg(connection: Any) -> bool:
    return hasattr(connection, "pgconn")


def is_idle(connection: Any) -> bool:
    return bool(connection.info.transaction_status == IDLE)


def placeholders(statement: Statement[Any]) -> bytes:
    """psycopg's way to say `$1`: each argument is there once, in order."""
    return re.sub(r"\$[0-9]+", "%s", statement.text).encode()
