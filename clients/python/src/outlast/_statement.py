"""One statement of ours, for any driver: every argument goes out as text, every row comes back as one text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from ._errors import BadName, BadPayload

T = TypeVar("T")


@dataclass(frozen=True)
class Statement(Generic[T]):
    """A statement with `$1`, `$2`, … each once and in their order, and how its answer is read."""

    text: str
    values: Sequence[str]
    read: Callable[[list[str]], T]


def nothing(_: list[str]) -> None:
    """Reads the answer of a function that answers nothing."""


class Arguments:
    """The arguments that are given, by name; what no text of PostgreSQL can hold is refused before it is sent."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._names: list[str] = []

    def text(self, name: str, value: str | None, cast: str = "") -> None:
        if value is None:
            return
        _refuse_unstorable(name, value)
        self._put(name, value, "{}" + cast)

    def uuid(self, name: str, value: UUID | str | None) -> None:
        if value is None:
            return
        try:
            self._put(name, str(value if isinstance(value, UUID) else UUID(value)), "{}::uuid")
        except (ValueError, AttributeError, TypeError):
            raise BadName(f"{name} {value!r} is not a UUID") from None

    def integer(self, name: str, value: int | None, bits: int = 32) -> None:
        if value is None:
            return
        if not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise BadName(f"{name} {value!r} is not an integer of {bits} bits")
        self._put(name, str(int(value)), "{}::int" if bits == 32 else "{}::bigint")

    def boolean(self, name: str, value: bool | None) -> None:
        if value is not None:
            self._put(name, "true" if value else "false", "{}::boolean")

    def bytes(self, name: str, value: bytes | bytearray | memoryview | None) -> None:
        if value is not None:
            self._put(name, bytes(value).hex(), "decode({}, 'hex')")

    def texts(self, name: str, values: Sequence[str | None]) -> None:
        for value in values:
            if value is not None:
                _refuse_unstorable(name, value)
        self._put(name, json.dumps(values), "array(select json_array_elements_text({}::json))")

    def call(self, function: str) -> str:
        """The call with these arguments."""
        return f"{function}({', '.join(self._names)})"

    def _put(self, name: str, value: str, expression: str) -> None:
        self.values.append(value)
        self._names.append(f"{name} => {expression.format(f'${len(self.values)}::text')}")


def _refuse_unstorable(name: str, value: str) -> None:
    """PostgreSQL has no NUL in a text, and half a surrogate pair is no character."""
    refused = BadPayload if name.startswith("payload") else BadName
    if not isinstance(value, str):
        raise refused(f"{name} is {type(value).__name__}, not str")
    if "\0" in value:
        raise refused(f"{name} holds a NUL character, which PostgreSQL cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refused(f"{name} holds half a surrogate pair, which PostgreSQL cannot store") from None
