"""The envelope: what an event is, from the headers of a push or the attributes of a broker's message. CloudEvents 1.0."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NoReturn, TypeVar
from uuid import UUID

from ._errors import OutlastError
from ._headers import Headers, pairs

T = TypeVar("T")

OWN = "outlast-h-"
"""Before the name of a header of the emitter's own."""


class Unreadable(OutlastError):
    """Headers that are no envelope of ours, or were changed on their way."""


@dataclass(frozen=True)
class Log:
    """A place in a log: which log, and the id in it."""

    log: str
    id: int


@dataclass(frozen=True)
class Envelope:
    """An event without its payload."""

    id: UUID
    """The event's id: the same at every attempt, after replay and restore."""
    type: str
    version: int
    """The version of the payload's shape."""
    tenant: str
    """Whose it is; empty where there is only one tenant."""
    key: str | None
    """What it is about; order is kept per tenant and key."""
    key_seq: int | None
    """Its number within its key, if the emitter asked for one."""
    aggregate_version: int | None
    """The version of what it is about."""
    source: str | None
    subject: str | None
    actor: str | None
    correlation_id: UUID | None
    causation_id: UUID | None
    traceparent: str | None
    """W3C trace context."""
    headers: dict[str, str]
    """The emitter's own."""
    content_type: str
    codec_key: str | None
    """Which key decodes the payload, if it is encoded."""
    emitted_at: datetime
    """When it was emitted, to the microsecond."""
    log: Log | None
    """Where in which log it stands."""


@dataclass(frozen=True)
class Attempt:
    """One try of a push, under a lease."""

    token: UUID
    """The lease: what `complete` needs. A secret while it lives."""
    number: int
    """From 1."""
    consumer: str
    """The consumer's name."""
    within_ms: int
    """How many milliseconds there are, from the arrival on, to answer or to complete."""


class _Attributes:
    """Those that are ours, decoded."""

    def __init__(self, headers: Headers) -> None:
        self.own: dict[str, str] = {}
        self._read: dict[str, str] = {}
        for name, raw in pairs(headers):
            # Other headers of a request may hold what is no percent-encoding.
            if not name.startswith(("ce-", "outlast-")) and name not in ("content-type", "traceparent"):
                continue
            value = _decode(name, raw)
            if name.startswith(OWN):
                self.own[_decode(OWN, name[len(OWN) :])] = value
            else:
                self._read[name] = value

    def get(self, name: str) -> str | None:
        return self._read.get(name)

    def need(self, name: str) -> str:
        if name not in self._read:
            raise Unreadable(f"the attribute {name} is missing")
        return self._read[name]

    def parsed(self, name: str, parse: Callable[[str], T | None]) -> T | None:
        return None if name not in self._read else self.needed(name, parse)

    def needed(self, name: str, parse: Callable[[str], T | None]) -> T:
        text = self.need(name)
        value = parse(text)
        return _bad(name, text) if value is None else value


def envelope(headers: Headers) -> Envelope:
    """Reads the envelope from headers; what is not ours is passed over.

    Raises `Unreadable`: what is missing or cannot be read.
    """
    read = _Attributes(headers)
    read.needed("ce-specversion", lambda spec: spec if spec == "1.0" else None)
    version = read.parsed("outlast-version", _version)
    return Envelope(
        id=read.needed("ce-id", _uuid),
        type=read.need("ce-type"),
        version=1 if version is None else version,
        tenant=read.get("outlast-tenant") or "",
        key=read.get("outlast-key"),
        key_seq=read.parsed("outlast-key-seq", _int64),
        aggregate_version=read.parsed("outlast-aggregate-version", _int64),
        # CloudEvents wants a source; an event without one says so.
        source=read.get("ce-source") if read.get("outlast-source") is None else None,
        subject=read.get("ce-subject"),
        actor=read.get("outlast-actor"),
        correlation_id=read.parsed("outlast-correlation-id", _uuid),
        causation_id=read.parsed("outlast-causation-id", _uuid),
        traceparent=_traceparent(read.get("traceparent")),
        headers=read.own,
        content_type=read.get("content-type") or "application/json",
        codec_key=read.get("outlast-codec-key"),
        emitted_at=read.needed("ce-time", _instant),
        log=read.parsed("outlast-log", _log),
    )


def attempt(headers: Headers) -> Attempt:
    """Reads from the headers of a push which try it is.

    Raises `Unreadable`: what is missing or cannot be read.
    """
    read = _Attributes(headers)
    return Attempt(
        token=read.needed("outlast-token", _uuid),
        number=read.needed("outlast-attempt", _count),
        consumer=read.need("outlast-consumer"),
        within_ms=read.needed("outlast-within-ms", _count),
    )


def _bad(name: str, value: str) -> NoReturn:
    shown = "".join(c for c in value if c.isprintable())[:100]
    raise Unreadable(f"the attribute {name} cannot be read: `{shown}`")


def _decode(name: str, value: str) -> str:
    """Percent-encoding of UTF-8."""
    if "%" not in value:
        return value
    if re.search(r"%(?![0-9A-Fa-f]{2})", value):
        _bad(name, value)
    raw = re.sub(rb"%(..)", lambda found: bytes.fromhex(found[1].decode()), value.encode(errors="surrogatepass"))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        _bad(name, value)


def _uuid(text: str) -> UUID | None:
    return UUID(text) if re.fullmatch(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", text) else None


def _version(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,5}", text) and int(text) <= 65_535 else None


def _count(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _int64(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) and -(1 << 63) <= int(text) < 1 << 63 else None


def _instant(text: str) -> datetime | None:
    found = re.fullmatch(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?Z", text)
    if not found:
        return None
    micros = int((found[2] or "0").ljust(6, "0")[:6])
    try:
        return datetime.fromisoformat(found[1]).replace(microsecond=micros, tzinfo=timezone.utc)
    except ValueError:
        return None


def _log(text: str) -> Log | None:
    log, colon, id = text.rpartition(":")
    number = _int64(id)
    return Log(log, number) if colon and number is not None else None


def _traceparent(text: str | None) -> str | None:
    """What is none is dropped: a trace then begins anew."""
    found = re.fullmatch(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[\x00-\x7f]*)?", text or "")
    if not found or len(found[0]) > 500 or found[1] == "ff" or (found[4] is not None and found[1] == "00"):
        return None
    return None if set(found[2]) == {"0"} or set(found[3]) == {"0"} else text
