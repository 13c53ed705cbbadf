"""A booking service. A booking and its event are one commit; the ledger entry and the completion of that event are another.

Events come in by `POST /push`, signed by Outlast, or are claimed by the service itself (`keep_ledger`).
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg_pool import ConnectionPool

import outlast

Pool = ConnectionPool[Connection[tuple[Any, ...]]]

TABLES = """
create table if not exists booking (
  id bigint generated always as identity primary key,
  request text not null unique,      -- the client's own name for it: a repeated request is no second booking
  guest text not null
);
create table if not exists ledger (  -- no unique constraint, on purpose: what was handled twice would be here twice
  booking bigint not null,
  event uuid not null
)"""


def prepare(pool: Pool) -> None:
    with pool.connection() as connection:
        connection.execute(TABLES)


def book(pool: Pool, request: str, guest: str) -> None:
    """Writes the booking and its event in one transaction."""
    with pool.connection() as connection:
        sql = "insert into booking (request, guest) values (%s, %s) on conflict do nothing returning id"
        row = connection.execute(sql, (request, guest)).fetchone()
        if row is not None:
            payload = {"booking": row[0], "guest": guest}
            outlast.emit(connection, "booking.confirmed", payload, key=f"booking/{row[0]}")


def enter(pool: Pool, token: UUID, id: UUID, payload: bytes) -> None:
    """Writes the entry and completes the event in one transaction: both are there, or neither."""
    booking = json.loads(payload)["booking"]
    with pool.connection() as connection:
        connection.execute("insert into ledger (booking, event) values (%s, %s)", (booking, id))
        outlast.complete(connection, token, id)


def keep_ledger(pool: Pool, stop: threading.Event) -> None:
    """Claims the events instead of being pushed to, until it is told to stop."""
    outlast.register(pool, "ledger", ["booking.confirmed"], start="earliest")
    outlast.work(
        pool,
        "ledger",
        lambda event: enter(pool, event.token, event.id, event.payload),
        stop=stop,
        lease_ms=3_000,
        idle_ms=200,
    )


def service(pool: Pool, keys: Sequence[str], port: int) -> ThreadingHTTPServer:
    """The service itself; `keys` are those that pushes are signed with."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.path == "/bookings":
                    book(pool, self.headers["idempotency-key"], json.loads(body)["guest"])
                    self.answer(201)
                elif self.path == "/push":
                    self.push(body)
                    self.answer(202, "accepted")
                else:
                    self.answer(404)
            except outlast.NotVerified:
                self.answer(401)
            except Exception:
                traceback.print_exc(file=sys.stderr)
                self.answer(500)

        def push(self, body: bytes) -> None:
            """A try that lost its lease raises, and nothing of it is kept; one that comes twice finds that it is done."""
            verified = outlast.verify(self.headers, body, keys)
            try:
                enter(pool, outlast.attempt(self.headers).token, UUID(verified.id), body)
            except outlast.AlreadySealed:
                pass

        def answer(self, status: int, outcome: str | None = None) -> None:
            self.send_response(status)
            if outcome is not None:
                self.send_header("outlast-outcome", outcome)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Service)
