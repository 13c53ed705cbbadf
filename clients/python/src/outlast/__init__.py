"""Outlast from Python: thin functions over the SQL functions, and the receiving end of a push.

For psycopg 3. `outlast.aio` has the same for asyncpg and psycopg's async connections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from threading import Event
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from . import _claim, _emit, _work
from ._claim import Claimed, Class, Failed
from ._emit import About, Accepted, Common, Json
from ._envelope import Attempt, Envelope, Log, Unreadable, attempt, envelope
from ._errors import (
    AlreadySealed,
    BadId,
    BadName,
    BadPayload,
    Conflict,
    ConsumerGone,
    Expired,
    Held,
    LeaseLost,
    Misconfigured,
    NotAllowed,
    NotInClaim,
    NotMigrated,
    NoTransaction,
    OutlastError,
    Standby,
    Stopped,
    TooLarge,
    UnknownConsumer,
    Unsendable,
    WrongTransaction,
)
from ._schema import checked
from ._sync import Connection, Database, alone, inside
from ._webhook import BadKey, NotVerified, Verified, verify
from ._work import Failure

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "About",
    "Accepted",
    "AlreadySealed",
    "Attempt",
    "BadId",
    "BadKey",
    "BadName",
    "BadPayload",
    "Claimed",
    "Class",
    "Common",
    "Conflict",
    "Connection",
    "ConsumerGone",
    "Database",
    "Envelope",
    "Expired",
    "Failed",
    "Failure",
    "Held",
    "Json",
    "LeaseLost",
    "Log",
    "Misconfigured",
    "NoTransaction",
    "NotAllowed",
    "NotInClaim",
    "NotMigrated",
    "NotVerified",
    "Outlast",
    "OutlastError",
    "Standby",
    "Stopped",
    "TooLarge",
    "UnknownConsumer",
    "Unreadable",
    "Unsendable",
    "Verified",
    "WrongTransaction",
    "attempt",
    "claim",
    "complete",
    "emit",
    "emit_all",
    "envelope",
    "fail",
    "fence",
    "register",
    "renew",
    "verify",
    "work",
]


class Outlast:
    """Outlast in one schema of a database. It holds nothing and opens nothing: make one where you like."""

    def __init__(self, schema: str = "outlast") -> None:
        """`schema`: what `outlast migrate --schema` was told."""
        self._schema = checked(schema)

    def emit(self, connection: Connection, type: str, payload: object, **about: Unpack[About]) -> Accepted:
        """Writes one event in your transaction.

        `payload`: any JSON value; `Json` for text that is stored as it is spelled; bytes, with their `content_type`.

        Raises `NoTransaction`, `Conflict`, `Expired`: nothing was written, and your transaction stays usable. Anything
        that PostgreSQL refuses (`BadName`, `TooLarge`, `BadPayload`, …) has aborted it: roll back.
        """
        return inside(connection, _emit.emit(self._schema, type, payload, **about))

    def emit_all(
        self,
        connection: Connection,
        type: str,
        payloads: Sequence[object],
        keys: Sequence[str | None] | None = None,
        **about: Unpack[Common],
    ) -> list[Accepted]:
        """Writes many events of one type in your transaction, in their order: one statement for each thousand."""
        statements = _emit.emit_all(self._schema, type, payloads, keys, **about)
        return [accepted for statement in statements for accepted in inside(connection, statement)]

    def complete(
        self,
        connection: Connection,
        token: UUID | str,
        id: UUID | str,
        outcome: Literal["done", "skipped"] = "done",
        reason: str | None = None,
    ) -> None:
        """Completes one event, as the last statement of the transaction that holds your effects: both commit, or neither.

        Raises `LeaseLost`, `AlreadySealed`, `NotInClaim`: the transaction cannot commit any more. Roll back.
        """
        inside(connection, _claim.complete(self._schema, token, id, outcome, reason))

    def fence(self, connection: Connection, token: UUID | str) -> None:
        """Proves the lease to the end of your transaction without completing anything, for work in several transactions."""
        inside(connection, _claim.fence(self._schema, token))

    def register(
        self,
        database: Database,
        consumer: str,
        types: Sequence[str],
        *,
        start: Literal["now", "earliest"] | None = None,
        ordered: bool | None = None,
        lanes: int | None = None,
    ) -> None:
        """Makes a consumer known, once; adds types to one that is known. `start` is where it begins to read."""
        alone(database, _claim.register(self._schema, consumer, types, start, ordered, lanes))

    def claim(
        self,
        database: Database,
        consumer: str,
        *,
        n: int | None = None,
        lease_ms: int | None = None,
        holder: str | None = None,
    ) -> list[Claimed]:
        """Hands out up to `n` (1) events under one lease (15,000 ms); none: nothing is due. Committed when it returns.

        `holder` is any stable name of this runner: what it has completed is then ended at its next claim.
        """
        return alone(database, _claim.claim(self._schema, consumer, n, lease_ms, holder))

    def fail(
        self,
        database: Database,
        token: UUID | str,
        id: UUID | str,
        failure: Class,
        reason: str,
        after_ms: int | None = None,
    ) -> Failed:
        """Records that a try failed, after its transaction was rolled back; answers what becomes of the event."""
        return alone(database, _claim.fail(self._schema, token, id, failure, reason, after_ms))

    def renew(self, database: Database, token: UUID | str, lease_ms: int | None = None) -> datetime:
        """Moves the end of a lease to `lease_ms` (15,000) from now; answers when that is."""
        return alone(database, _claim.renew(self._schema, token, lease_ms))

    def work(
        self,
        database: Database,
        consumer: str,
        handler: Callable[[Claimed], object],
        *,
        stop: Event,
        n: int = 10,
        lease_ms: int = 15_000,
        idle_ms: int = 1_000,
        on_error: Callable[[Exception], None] = _work.warn,
    ) -> None:
        """Hands out events to a handler, one after the other, until `stop` is set and the claim in work is through.

        The handler opens its own transaction, and completes the event in it as the last statement; what it raises is
        recorded with `fail`. A lease must be long enough for one handler; between two of them it is renewed. Give it a
        pool: a database that is away is waited for, and `on_error` is told (default: a line of the log `outlast`).

        Raises what no waiting mends: no such consumer, no schema, no right.
        """
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
                    answer = alone(database, step.statement)
                elif isinstance(step, _work.Handle):
                    handler(step.event)
                else:
                    answer = stop.wait(step.seconds)
            except Exception as raised:
                error = raised


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
