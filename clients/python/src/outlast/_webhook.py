"""Verifying a push: Standard Webhooks signatures (v1, HMAC-SHA256) over the bytes as they came."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from ._errors import OutlastError
from ._headers import Headers, pairs

KEY_BYTES = 16
"""A shorter key could be guessed."""


class NotVerified(OutlastError):
    """This request was not signed with any of the keys, or was changed, or is too old. Answer 401, and do not say why."""


class BadKey(OutlastError):
    """A key that is none: a matter of your configuration, not of the request."""


@dataclass(frozen=True)
class Verified:
    """A request that was signed with one of the keys."""

    id: str
    """The same at every attempt."""
    timestamp: datetime
    """When this attempt was signed."""


def verify(
    headers: Headers, body: bytes, keys: Sequence[str], *, tolerance: int = 300, now: float | None = None
) -> Verified:
    """Verifies that a request was signed with one of these keys (`whsec_…`; several while they are rotated).

    `body`: the bytes as they came, before any parser. `tolerance`: how many seconds the sender's clock and ours may
    differ, either way. `now`: seconds since 1970, if not the clock's.

    Raises `NotVerified` when it was not, `BadKey` when a key cannot be one.
    """
    if isinstance(keys, str) or not keys:
        raise BadKey("keys is a list with at least one key")
    secrets = [_secret(key) for key in keys]
    id = _single(headers, "webhook-id")
    at = _single(headers, "webhook-timestamp")
    signatures = _single(headers, "webhook-signature").split(" ")
    # A full stop parts what is signed.
    if id == "" or "." in id:
        raise NotVerified("webhook-id cannot be read")
    if not re.fullmatch(r"[0-9]{1,12}", at):
        raise NotVerified("webhook-timestamp cannot be read")
    age = int(time.time() if now is None else now) - int(at)
    if abs(age) > tolerance:
        raise NotVerified(f"signed {age} seconds ago, {tolerance} are allowed")

    given = [_decoded(signature[3:]) for signature in signatures if signature.startswith("v1,")]
    signed = f"{id}.{at}.".encode() + body
    matches = False
    for key in secrets:
        expected = hmac.new(key, signed, hashlib.sha256).digest()
        # All of them are looked at, so that the time it takes says nothing about which one it was.
        for signature in given:
            matches |= signature is not None and hmac.compare_digest(signature, expected)
    if not matches:
        raise NotVerified("no signature fits any of the keys")
    return Verified(id, datetime.fromtimestamp(int(at), timezone.utc))


def _single(headers: Headers, name: str) -> str:
    """A header that must be there once: who sends it twice wants two readers to see different things."""
    values = [value for known, value in pairs(headers) if known == name]
    if not values:
        raise NotVerified(f"{name} is missing")
    # Servers join what came twice.
    if len(values) > 1 or ", " in values[0]:
        raise NotVerified(f"{name} is there twice")
    return values[0]


def _secret(key: str) -> bytes:
    decoded = _decoded(key[len("whsec_") :]) if key.startswith("whsec_") else None
    if decoded is None or len(decoded) < KEY_BYTES:
        raise BadKey(f"a key is whsec_ and base64 of at least {KEY_BYTES} bytes")
    return decoded


def _decoded(text: str) -> bytes | None:
    """Strictly; padding may be left out."""
    bare = re.sub(r"={1,2}$", "", text)
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
