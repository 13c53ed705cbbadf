"""Working without the Rust worker: claim commits at once and gives a token; complete is the last statement of the
transaction that holds your effects, and raises when somebody newer owns the event."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal
from uuid import UUID

from ._statement import Arguments, Statement, nothing

Class = Literal["retry", "throttled", "unknown", "permanent", "unclassified"]
"""What kind of failure it was: it decides whether and when there is another try."""

Failed = Literal["retry", "quarantined", "behind"]
"""What became of it: another try comes; a person must look; or it waits behind an earlier event of its key."""


@dataclass(frozen=True)
class Claimed:
    """An event that was handed out under a lease."""

    token: UUID = field(repr=False)
    """The lease: of all events of one claim."""
    id: UUID
    """The event's id: the same in every try, after replay and after restore."""
    key: str | None
    tenant: str
    attempt: int
    """From 1."""
    version: int
    """The version of the payload's shape."""
    payload: bytes = field(repr=False)
    """Byte for byte what was emitted."""
    content_type: str

    def json(self) -> Any:
        """The payload, read as JSON."""
        return json.loads(self.payload)


def register(
    schema: str, consumer: str, types: Sequence[str], start: str | None, ordered: bool | None, lanes: int | None
) -> Statement[None]:
    args = Arguments()
    args.text("consumer", consumer)
    args.texts("types", list(types))
    args.text("start", start)
    args.boolean("ordered", ordered)
    args.integer("lanes", lanes)
    return Statement(f"select {args.call(f'{schema}.register')}::text", args.values, nothing)


def is_ordered(schema: str, consumer: str) -> Statement[bool]:
    """Of an ordered consumer, what comes after an event that failed waits behind it."""
    text = f"select c.ordered::text from {schema}.consumer c where c.name = $1::text"
    return Statement(text, [consumer], lambda rows: rows == ["true"])


def claim(schema: str, consumer: str, n: int | None, lease_ms: int | None, holder: str | None) -> Statement[list[Claimed]]:
    args = Arguments()
    args.text("kind", "event")
    args.text("name", consumer)
    args.integer("n", n)
    args.integer("lease_ms", lease_ms)
    args.text("holder", holder)
    columns = (
        "json_build_array(c.token, c.id, c.key, c.tenant, c.attempt, c.version, encode(c.payload, 'hex'), c.content_type)"
    )
    text = f"select {columns}::text from {args.call(f'{schema}.claim')} c"
    return Statement(text, args.values, lambda rows: [_claimed(row) for row in rows])


def _claimed(row: str) -> Claimed:
    token, id, key, tenant, attempt, version, payload, content_type = json.loads(row)
    return Claimed(UUID(token), UUID(id), key, tenant, attempt, version, bytes.fromhex(payload), content_type)


def complete(schema: str, token: UUID | str, id: UUID | str, outcome: str | None, reason: str | None) -> Statement[None]:
    args = Arguments()
    args.uuid("token", token)
    args.uuid("id", id)
    args.text("outcome", outcome)
    args.text("reason", reason)
    return Statement(f"select {args.call(f'{schema}.complete')}::text", args.values, nothing)


def fence(schema: str, token: UUID | str) -> Statement[None]:
    args = Arguments()
    args.uuid("token", token)
    return Statement(f"select {args.call(f'{schema}.fence')}::text", args.values, nothing)


def fail(
    schema: str, token: UUID | str, id: UUID | str, failure: str, reason: str, after_ms: int | None
) -> Statement[Failed]:
    args = Arguments()
    args.uuid("token", token)
    args.uuid("id", id)
    args.text("class", failure)
    # An error's text may hold anything; that it failed must be recorded all the same.
    args.text("reason", reason.replace("\0", "").encode(errors="replace").decode())
    args.integer("after_ms", after_ms, bits=64)
    return Statement(f"select {args.call(f'{schema}.fail')}", args.values, _failed)


def _failed(rows: list[str]) -> Failed:
    became: Failed = rows[0]  # type: ignore[assignment]
    return became


def renew(schema: str, token: UUID | str, lease_ms: int | None) -> Statement[datetime]:
    args = Arguments()
    args.uuid("token", token)
    args.integer("lease_ms", lease_ms)
    text = f"select extract(epoch from {args.call(f'{schema}.renew')})::text"
    return Statement(text, args.values, lambda rows: datetime.fromtimestamp(float(rows[0]), timezone.utc))
