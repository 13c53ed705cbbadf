"""The same as `outlast` for asyncpg and psycopg's async connections: each function is awaited.

Everything else (`Json`, `verify`, `envelope`, the errors) is in `outlast`.
"""

from __future__ import annotations

import asyncio
from asyncio import Event
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from . import _claim, _emit, _work
from ._async import Connection, Database, alone, inside
from ._claim import Claimed, Class, Failed
from ._emit import About, Accepted, Common
from ._schema import checked

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Connection",
    "Database",
    "Outlast",
    "claim",
    "complete",
    "emit",
    "emit_all",
    "fail",
    "fence",
    "register",
    "renew",
    "work",
]


class Outlast:
    """As `outlast.Outlast`, for connections that are awaited."""

    def __init__(self, schema: str = "outlast") -> None:
        """`schema`: what `outlast migrate --schema` was told."""
        self._schema = checked(schema)

    async def emit(self, connection: Connection, type: str, payload: object, **about: Unpack[About]) -> Accepted:
        """As `outlast.Outlast.emit`."""
        return await inside(connection, _emit.emit(self._schema, type, payload, **about))

    async def emit_all(
        self,
        connection: Connection,
        type: str,
        payloads: Sequence[object],
        keys: Sequence[str | None] | None = None,
        **about: Unpack[Common],
    ) -> list[Accepted]:
        """As `outlast.Outlast.emit_all`."""
        statements = _emit.emit_all(self._schema, type, payloads, keys, **about)
        return [accepted for statement in statements for accepted in await inside(connection, statement)]

    async def complete(
        self,
        connection: Connection,
        token: UUID | str,
        id: UUID | str,
        outcome: Literal["done", "skipped"] = "done",
        reason: str | None = None,
    ) -> None:
        """As `outlast.Outlast.complete`."""
        await inside(connection, _claim.complete(self._schema, token, id, outcome, reason))

    async def fence(self, connection: Connection, token: UUID | str) -> None:
        """As `outlast.Outlast.fence`."""
        await inside(connection, _claim.fence(self._schema, token))

    async def register(
        self,
        database: Database,
        consumer: str,
        types: Sequence[str],
        *,
        start: Literal["now", "earliest"] | None = None,
        ordered: bool | None = None,
        lanes: int | None = None,
    ) -> None:
        """As `outlast.Outlast.register`."""
        await alone(database, _claim.register(self._schema, consumer, types, start, ordered, lanes))

    async def claim(
        self,
        database: Database,
        consumer: str,
        *,
        n: int | None = None,
        lease_ms: int | None = None,
        holder: str | None = None,
    ) -> list[Claimed]:
        """As `outlast.Outlast.claim`."""
        return await alone(database, _claim.claim(self._schema, consumer, n, lease_ms, holder))

    async def fail(
        self,
        database: Database,
        token: UUID | str,
        id: UUID | str,
        failure: Class,
        reason: str,
        after_ms: int | None = None,
    ) -> Failed:
        """As `outlast.Outlast.fail`."""
        return await alone(database, _claim.fail(self._schema, token, id, failure, reason, after_ms))

    async def renew(self, database: Database, token: UUID | str, lease_ms: int | None = None) -> datetime:
        """As `outlast.Outlast.renew`."""
        return await alone(database, _claim.renew(self._schema, token, lease_ms))

    async def work(
        self,
        database: Database,
        consumer: str,
        handler: Callable[[Claimed], Awaitable[object]],
        *,
        stop: Event,
        n: int = 10,
        lease_ms: int = 15_000,
        idle_ms: int = 1_000,
        on_error: Callable[[Exception], None] = _work.warn,
    ) -> None:
        """As `outlast.Outlast.work`."""
        steps = _work.steps(self._schema, consumer, n, lease_ms, idle_ms, on_error)
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                step = steps.throw(error) if error else steps.send(answer)
            except StopIteration:
                return
            answer, error = None, None
            try:
                if isinstance(step, _work.Ask):
                    answer = await alone(database, step.statement)
                elif isinstance(step, _work.Handle):
                    await handler(step.event)
                else:
                    answer = await _wait(stop, step.seconds)
            except Exception as raised:
                error = raised


async def _wait(stop: Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except asyncio.TimeoutError:
        pass
    return stop.is_set()


_default = Outlast()
emit = _default.emit
emit_all = _default.emit_all
complete = _default.complete
fence = _default.fence
register = _default.register
claim = _default.claim
fail = _default.fail
renew = _default.renew
work = _default.work
