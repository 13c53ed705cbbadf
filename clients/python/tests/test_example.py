from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from http.client import HTTPConnection

import pytest
from bookings import Pool, keep_ledger, prepare, service
from drivers import new_database, pooled

import outlast

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_example_books_and_enters_what_is_pushed_to_it_once() -> None:
    with Pool(new_database(), min_size=1, max_size=4, open=True) as pool:
        books(pool)


def test_the_example_does_the_same_through_a_pooler() -> None:
    url = pooled(new_database()) or pytest.skip("PgBouncer is missing")
    with Pool(url, kwargs={"prepare_threshold": None}, min_size=1, max_size=4, open=True) as pool:
        books(pool)


def books(pool: Pool) -> None:
    with service(pool, [KEY], 0) as server:
        prepare(pool)
        outlast.register(pool, "ledger", ["booking.confirmed"])
        serving = threading.Thread(target=server.serve_forever)
        serving.start()

        def post(path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str | None]:
            client = HTTPConnection("127.0.0.1", server.server_port)
            client.request("POST", path, body, headers)
            answer = client.getresponse()
            answer.read()
            client.close()
            return answer.status, answer.headers["outlast-outcome"]

        def count(table: str) -> int:
            with pool.connection() as connection:
                return len(connection.execute(f"select 1 from {table}".encode()).fetchall())

        try:
            for request in ("1", "1", "2"):
                assert post("/bookings", '{"guest":"Zoë"}'.encode(), {"idempotency-key": request}) == (201, None)
            assert count("outlast.event") == 2

            # As docs/push.md says.
            [event] = outlast.claim(pool, "ledger", n=1, holder="push")
            at = str(int(time.time()))
            signed = f"{event.id}.{at}.".encode() + event.payload
            mac = hmac.new(base64.b64decode(KEY[6:]), signed, hashlib.sha256).digest()
            headers = {
                "webhook-id": str(event.id),
                "webhook-timestamp": at,
                "webhook-signature": f"v1,{base64.b64encode(mac).decode()}",
                "outlast-token": str(event.token),
                "outlast-attempt": "1",
                "outlast-consumer": "ledger",
                "outlast-within-ms": "15000",
            }
            assert post("/push", event.payload + b" ", headers) == (401, None)
            assert count("ledger") == 0
            assert post("/push", event.payload, headers) == (202, "accepted")
            assert post("/push", event.payload, headers) == (202, "accepted")
            assert count("ledger") == 1

            # The other way: by claims.
            stop = threading.Event()
            keeping = threading.Thread(target=keep_ledger, args=(pool, stop))
            keeping.start()
            deadline = time.monotonic() + 30
            while count("ledger") != 2:
                assert time.monotonic() < deadline, "the second booking is entered in time"
            stop.set()
            keeping.join()
        finally:
            server.shutdown()
            serving.join()
