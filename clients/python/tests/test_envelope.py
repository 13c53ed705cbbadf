from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from outlast import Attempt, Envelope, Log, Unreadable, attempt, envelope

# Written by the Rust that writes them on the wire; see crates/outlast-core/tests/clients.rs.
VECTORS = json.loads((Path(__file__).parents[2] / "vectors/envelopes.json").read_text())


def expected(e: dict[str, Any]) -> Envelope:
    def number(text: str | None) -> int | None:
        return None if text is None else int(text)

    def uuid(text: str | None) -> UUID | None:
        return None if text is None else UUID(text)

    same = ("type", "version", "tenant", "key", "source", "subject", "actor", "traceparent", "headers", "content_type", "codec_key")
    return Envelope(
        id=UUID(e["id"]),
        key_seq=number(e["key_seq"]),
        aggregate_version=number(e["aggregate_version"]),
        correlation_id=uuid(e["correlation_id"]),
        causation_id=uuid(e["causation_id"]),
        emitted_at=datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=int(e["emitted_at_micros"])),
        log=e["log"] and Log(e["log"]["log"], int(e["log"]["id"])),
        **{name: e[name] for name in same},
    )


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_an_envelope_comes_back_as_it_was_whatever_became_of_the_case_of_its_names(vector: dict[str, Any]) -> None:
    attributes: list[tuple[str, str]] = [(name, value) for name, value in vector["attributes"]]
    assert envelope(attributes) == expected(vector["envelope"])
    assert envelope(dict(attributes)) == expected(vector["envelope"])
    assert envelope([(name.upper(), value) for name, value in attributes]) == expected(vector["envelope"])
    assert envelope([(name.encode(), value.encode()) for name, value in attributes]) == expected(vector["envelope"])


def test_what_is_not_ours_or_broken_is_told_by_name_and_what_is_anothers_is_passed_over() -> None:
    [good] = [dict(vector["attributes"]) for vector in VECTORS if vector["name"] == "whole"]
    for name in ("ce-specversion", "ce-id", "ce-type", "ce-time"):
        with pytest.raises(Unreadable, match=f"^the attribute {name} is missing$"):
            envelope({known: value for known, value in good.items() if known != name})
    broken = [
        ("ce-specversion", "0.3"),
        ("ce-id", "7"),
        ("ce-time", "yesterday"),
        ("ce-time", "2026-13-01T00:00:00Z"),
        ("outlast-version", "70000"),
        ("outlast-version", ""),
        ("outlast-key-seq", "9223372036854775808"),
        ("outlast-key", "%f"),
        ("outlast-key", "%FF"),
        ("outlast-key", "%ED%A0%80"),
        ("outlast-log", "prod"),
        ("outlast-log", "prod:x"),
        ("outlast-causation-id", "x"),
    ]
    for name, value in broken:
        with pytest.raises(Unreadable, match=name):
            envelope(good | {name: value})
    assert envelope(good | {"x-other": "100%"}).type == "booking.confirmed/v2"
    assert envelope(good | {"traceparent": "nonsense"}).traceparent is None
    del good["content-type"]
    assert envelope(good).content_type == "application/json"


def test_a_push_says_which_try_it_is() -> None:
    token = uuid4()
    headers = {
        "Outlast-Token": str(token).upper(),
        "outlast-attempt": "2",
        "outlast-consumer": "mail",
        "outlast-within-ms": "14000",
    }
    assert attempt(headers) == Attempt(token, 2, "mail", 14_000)
    with pytest.raises(Unreadable):
        attempt(headers | {"Outlast-Token": "7"})
    with pytest.raises(Unreadable, match="^the attribute outlast-attempt is missing$"):
        attempt({"outlast-token": str(token)})
