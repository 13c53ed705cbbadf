"""Headers, in whatever shape a server hands them on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, Union


class _Items(Protocol):
    """Such as `http.client.HTTPMessage`: no mapping, but it has items."""

    def items(self) -> Iterable[tuple[str, str]]: ...


Headers = Union[Mapping[str, str], _Items, Iterable[tuple[str, str]], Iterable[tuple[bytes, bytes]]]
"""A mapping, a message of the standard library, or pairs (ASGI's bytes too). Names count in any case."""


def pairs(headers: Headers) -> list[tuple[str, str]]:
    """Each header with its name in lower case, as often as it was given."""
    items: Any = headers.items() if hasattr(headers, "items") else headers
    return [(_text(name).lower(), _text(value)) for name, value in items]


def _text(part: str | bytes) -> str:
    return part.decode("latin-1") if isinstance(part, bytes) else part
