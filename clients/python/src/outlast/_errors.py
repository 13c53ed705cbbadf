"""What can go wrong, as one class each, by the SQLSTATE that the functions of Outlast raise.

Whatever is not of Outlast is left as the driver raised it.
"""

from __future__ import annotations

from uuid import UUID


class OutlastError(Exception):
    """Anything of Outlast. `code` names the page in `docs/errors` that says what to do, `state` is the SQLSTATE behind it."""

    def __init__(self, message: str, *, state: str | None = None, code: str | None = None) -> None:
        super().__init__(f"{message} ({code})" if code else message)
        self.state = state
        self.code = code


class NoTransaction(OutlastError):
    """No transaction is open, so the intent would be a second, separate write. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__(
            "no transaction is open on this connection: begin one, write your rows in it, "
            "then call this with the same connection"
        )


class Conflict(OutlastError):
    """The same dedup key or id was accepted before with other content. Nothing was written; your transaction stays usable."""

    def __init__(self, key: str, first: UUID) -> None:
        super().__init__(f"event {key}: accepted before with other content, as {first}; give another intent another key")
        self.first = first
        """The id of the event that was accepted."""


class Expired(OutlastError):
    """The same dedup key was accepted so long ago that nothing can be compared any more. Nothing was written."""

    def __init__(self, key: str) -> None:
        super().__init__(f"event {key}: accepted before, longer ago than keys are compared; give a new intent a new key")


class LeaseLost(OutlastError):
    """Somebody newer owns this work. Roll back; do not repair."""


class AlreadySealed(OutlastError):
    """This event was completed before; nothing of this transaction may be kept."""


class NotInClaim(OutlastError):
    """The event is not in this claim, or a later try owns it."""


class Stopped(OutlastError):
    """The database may have been restored or copied; a person must confirm before work goes on."""


class BadName(OutlastError):
    """A type, key, tenant or other argument that cannot be stored."""


class TooLarge(OutlastError):
    """The payload is too large: store the content elsewhere and emit a reference to it."""


class Unsendable(OutlastError):
    """A route of the event's type could never send it: its broker takes no such message."""


class BadPayload(OutlastError):
    """A payload that no reader could be trusted with: not JSON, too deep, NUL, not UTF-8."""


class BadId(OutlastError):
    """An event id of the caller's that is not a version 7 UUID of the last days."""


class Standby(OutlastError):
    """The server is a standby: connect to the primary."""


class WrongTransaction(OutlastError):
    """The wrong isolation level, or a transaction where none should be open."""


class Misconfigured(OutlastError):
    """The database is configured so that events would be lost."""


class UnknownConsumer(OutlastError):
    """No such consumer is registered."""


class NotMigrated(OutlastError):
    """The schema of Outlast is missing or too old: run `outlast migrate`."""


class ConsumerGone(OutlastError):
    """This consumer is retired, or has another name now."""


class Held(OutlastError):
    """What leaves the database is held until a person has confirmed."""


class NotAllowed(OutlastError):
    """This login has no role of the schema that would let it do this."""


STATES: dict[str, tuple[type[OutlastError], str | None]] = {
    "OL001": (LeaseLost, "OUT-0005"),
    "OL002": (AlreadySealed, "OUT-0005"),
    "OL003": (NotInClaim, "OUT-0005"),
    "OL004": (Stopped, "OUT-0006"),
    "OL005": (BadName, None),
    "OL006": (TooLarge, None),
    "OL007": (BadPayload, None),
    "OL008": (BadId, None),
    "OL009": (Standby, "OUT-0004"),
    "OL010": (WrongTransaction, "OUT-0015"),
    "OL011": (Misconfigured, "OUT-0008"),
    "OL012": (UnknownConsumer, "OUT-0007"),
    "OL013": (NotMigrated, "OUT-0002"),
    "OL014": (ConsumerGone, "OUT-0022"),
    "OL020": (Held, "OUT-0021"),
    "OL021": (Unsendable, "OUT-0023"),
    # Of a statement of ours these can only be about what `outlast migrate` makes and grants.
    "3F000": (NotMigrated, "OUT-0002"),
    "42883": (NotMigrated, "OUT-0002"),
    "42P01": (NotMigrated, "OUT-0002"),
    "42501": (NotAllowed, "OUT-0020"),
}
"""The SQLSTATEs of the schema's functions; tests compare them with their source."""


def translate(error: Exception) -> OutlastError | None:
    """The error that a driver raised for a statement of ours: one of ours by its SQLSTATE, or none."""
    state = getattr(error, "sqlstate", None)
    if not isinstance(state, str):
        return None
    known = STATES.get(state) or ((OutlastError, None) if state.startswith("OL") else None)
    if known is None:
        return None
    # psycopg has them in `diag`, asyncpg on the error itself; as a text both add the place in the function.
    diag = getattr(error, "diag", None)
    message = getattr(diag, "message_primary", None) or getattr(error, "message", None) or str(error)
    hint = getattr(diag, "message_hint", None) or getattr(error, "hint", None)
    made, code = known
    return made(f"{message}; {hint}" if hint else message, state=state, code=code)
