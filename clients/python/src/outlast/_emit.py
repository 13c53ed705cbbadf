"""Emitting: the statement that writes an event in the caller's transaction, and what may be said beside its payload."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict
from uuid import UUID

from ._errors import BadName, BadPayload, Conflict, Expired
from ._statement import Arguments, Statement

if TYPE_CHECKING:
    from typing_extensions import Unpack

ROWS = 1000
"""How many events one statement of `emit_all` takes."""


@dataclass(frozen=True)
class Json:
    """A payload that is JSON text already, and is stored as it is spelled."""

    text: str


class Common(TypedDict, total=False):
    """What one event and many events of one type have in common."""

    tenant: str
    """Whose it is; empty where there is only one."""
    version: int
    """The version of the payload's shape, from 1."""
    source: str | None
    """Where it comes from, as CloudEvents means it."""
    actor: str | None
    """Who asked."""
    correlation_id: UUID | str | None
    """What belongs together."""
    causation_id: UUID | str | None
    """The event that led to this one."""
    traceparent: str | None
    """W3C trace context; what is none is dropped."""


class About(Common, total=False):
    """What may be said of one event."""

    key: str | None
    """What it is about; ordered consumers keep the order of each tenant and key."""
    dedup: str | None
    """Same tenant, type and dedup key: the same intent, written once (30 days)."""
    id: UUID | str | None
    """A version 7 UUID of the caller's; else the database makes one."""
    subject: str | None
    """What of the source it is about, as CloudEvents means it."""
    aggregate_version: int | None
    """The version of the thing that it is about."""
    strict_key: bool
    """Number it within its key, without holes; waits for whoever else emits for this key."""
    headers: Mapping[str, str] | None
    """Your own, copied to every reader."""
    content_type: str
    """What a payload of bytes is, such as `application/cbor`."""
    codec_key: str | None
    """Which key the bytes are encrypted with; `content_type` is then that of the plain text."""
    digest: bytes | None
    """What tells the same content from another instead of the bytes, for encrypted ones: a MAC of 16 to 64 bytes."""


@dataclass(frozen=True)
class Accepted:
    """What became of an event: durable when your transaction commits, gone if it does not."""

    id: UUID
    """Its id for life: the same in every try, after replay and after restore."""
    new: bool
    """False: the same intent was there already, and nothing was written."""


def emit(schema: str, type: str, payload: object, **about: Unpack[About]) -> Statement[Accepted]:
    unknown = about.keys() - About.__annotations__.keys() - Common.__annotations__.keys()
    if unknown:
        raise TypeError(f"emit() got an unexpected keyword argument {min(unknown)!r}")
    args = Arguments()
    _common(args, type, about)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        if "content_type" not in about:
            raise BadName(f"emit {type}: a payload of bytes needs its content_type")
        args.bytes("bytes", payload)
        args.text("content_type", about["content_type"])
    elif "content_type" in about:
        raise BadName(f"emit {type}: content_type is of a payload of bytes; this one is JSON")
    else:
        args.text("payload", _json(type, payload))
    args.text("key", about.get("key"))
    args.text("dedup", about.get("dedup"))
    args.uuid("event_id", about.get("id"))
    args.text("subject", about.get("subject"))
    args.integer("aggregate_version", about.get("aggregate_version"), bits=64)
    args.boolean("strict_key", about.get("strict_key"))
    headers = about.get("headers")
    args.text("headers", None if headers is None else json.dumps(dict(headers)), "::jsonb")
    args.text("codec_key", about.get("codec_key"))
    args.bytes("digest", about.get("digest"))

    def read(rows: list[str]) -> Accepted:
        id, new, conflict, expired = json.loads(rows[0])
        name = str(about.get("dedup") or about.get("id") or id)
        if conflict:
            raise Conflict(name, UUID(id))
        if expired:
            raise Expired(name)
        return Accepted(UUID(id), new)

    columns = "json_build_array(e.id, e.new, e.conflict, e.expired)::text"
    return Statement(f"select {columns} from {args.call(f'{schema}.emit')} e", args.values, read)


def emit_all(
    schema: str, type: str, payloads: Sequence[object], keys: Sequence[str | None] | None, **about: Unpack[Common]
) -> list[Statement[list[Accepted]]]:
    unknown = about.keys() - Common.__annotations__.keys()
    if unknown:
        raise TypeError(f"emit_all() got an unexpected keyword argument {min(unknown)!r}")
    if keys is not None and len(keys) != len(payloads):
        raise BadName(f"emit_all {type}: {len(payloads)} payloads and {len(keys)} keys")
    # All of them before the first is sent: bad ones leave nothing half-written.
    texts = [_json(type, payload) for payload in payloads]
    statements = []
    for start in range(0, len(texts), ROWS):
        args = Arguments()
        _common(args, type, about)
        args.texts("payloads", texts[start : start + ROWS])
        if keys is not None:
            args.texts("keys", keys[start : start + ROWS])
        columns = "json_agg(e.id order by e.ord)::text"
        text = f"select {columns} from {args.call(f'{schema}.emit_all')} e"
        statements.append(Statement(text, args.values, _read_all))
    return statements


def _read_all(rows: list[str]) -> list[Accepted]:
    return [Accepted(UUID(id), True) for id in json.loads(rows[0])]


def _common(args: Arguments, type: str, about: Common) -> None:
    args.text("type", type)
    args.text("tenant", about.get("tenant"))
    args.integer("version", about.get("version"))
    args.text("source", about.get("source"))
    args.text("actor", about.get("actor"))
    args.uuid("correlation_id", about.get("correlation_id"))
    args.uuid("causation_id", about.get("causation_id"))
    args.text("traceparent", about.get("traceparent"))


def _json(type: str, payload: object) -> str:
    if isinstance(payload, Json):
        return payload.text
    try:
        return json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadPayload(f"emit {type}: payload is not JSON: {error}") from error
