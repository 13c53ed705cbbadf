"""A plain worker, as steps that a loop of either kind takes: claim, hand out, record what failed.

It opens no transaction: the handler completes the event in its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Union
from uuid import uuid4

from . import _claim
from ._claim import Claimed, Class
from ._errors import AlreadySealed, LeaseLost, NotInClaim, OutlastError
from ._statement import Statement


class Failure(Exception):
    """Raised by a handler that knows what kind of failure it is.

    Whatever else it raises is `unclassified`, and tried again.
    """

    def __init__(self, failure: Class, reason: str, after_ms: int | None = None) -> None:
        super().__init__(reason)
        self.failure = failure
        self.after_ms = after_ms


def warn(error: Exception) -> None:
    """What is told where nobody else wants to be: a line of the log."""
    logging.getLogger("outlast").warning("%s", error)


@dataclass(frozen=True)
class Ask:
    """Send this; it commits at once."""

    statement: Statement[Any]


@dataclass(frozen=True)
class Handle:
    """Let the handler do this."""

    event: Claimed


@dataclass(frozen=True)
class Wait:
    """Nothing is due: wait so long, or until it is over; answer whether it is over."""

    seconds: float


Step = Union[Ask, Handle, Wait]


def steps(
    schema: str, consumer: str, n: int, lease_ms: int, idle_ms: int, on_error: Callable[[Exception], None]
) -> Generator[Step, Any, None]:
    """Steps until a `Wait` is answered with true."""
    holder = str(uuid4())
    ordered = None
    while True:
        wait = 0.0
        try:
            if ordered is None:
                ordered = yield Ask(_claim.is_ordered(schema, consumer))
            events = yield Ask(_claim.claim(schema, consumer, n, lease_ms, holder))
            yield from _hand_out(schema, events, lease_ms, ordered)
            if not events:
                wait = idle_ms / 1000
        except Exception as error:
            # A lost lease: somebody newer has the rest. What is not ours: the database is away for a while.
            if isinstance(error, OutlastError) and not isinstance(error, LeaseLost):
                raise
            on_error(error)
            wait = idle_ms / 1000
        if (yield Wait(wait)):
            return


def _hand_out(schema: str, events: list[Claimed], lease_ms: int, ordered: bool) -> Generator[Step, Any, None]:
    failed = set()
    renewed = time.monotonic()
    for event in events:
        # It waits behind the one that failed.
        if ordered and event.key is not None and (event.tenant, event.key) in failed:
            continue
        if time.monotonic() - renewed > lease_ms / 3000:
            yield Ask(_claim.renew(schema, event.token, lease_ms))
            renewed = time.monotonic()
        try:
            yield Handle(event)
        except LeaseLost:
            raise
        except Exception as error:
            if (yield from _record(schema, event, error)):
                failed.add((event.tenant, event.key))


def _record(schema: str, event: Claimed, error: Exception) -> Generator[Step, Any, bool]:
    """Whether the event is still to be done."""
    failure, after_ms = (error.failure, error.after_ms) if isinstance(error, Failure) else ("unclassified", None)
    try:
        yield Ask(_claim.fail(schema, event.token, event.id, failure, str(error) or repr(error), after_ms))
    except AlreadySealed:
        return False  # It is completed, whatever the handler saw: the answer to its COMMIT may have been lost.
    except NotInClaim:
        pass
    return True
