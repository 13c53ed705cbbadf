from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from outlast import BadKey, NotVerified, verify

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/signatures.json").read_text())
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_a_signature_is_judged_as_the_vectors_say(vector: dict[str, Any]) -> None:
    headers = [(name, value) for name, value in vector["headers"]]

    def judge() -> tuple[str, float]:
        body = base64.b64decode(vector["body"])
        verified = verify(headers, body, vector["keys"], tolerance=vector["tolerance"], now=vector["now"])
        return verified.id, verified.timestamp.timestamp()

    if vector["verified"]:
        assert judge() == (headers[0][1], float(headers[1][1]))
    else:
        with pytest.raises(NotVerified):
            judge()


@pytest.mark.parametrize(
    "keys", [[], [""], ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], ["whsec_"], ["whsec_c2hvcnQ="], ["whsec_!" * 20], [KEY, "x"], KEY]
)
def test_a_key_that_cannot_be_one_is_an_error_of_who_configures_it(keys: Any) -> None:
    with pytest.raises(BadKey):
        verify({}, b"", keys)


def test_headers_are_read_as_servers_hand_them_on_over_a_real_connection_too() -> None:
    at = int(time.time())
    body = b"\x00\xff\n"
    mac = hmac.new(base64.b64decode(KEY[6:]), f"id.{at}.".encode() + body, hashlib.sha256).digest()
    headers = {
        "Webhook-Id": "id",
        "Webhook-Timestamp": str(at),
        "Webhook-Signature": "v1," + base64.b64encode(mac).decode(),
    }
    assert verify(headers, body, [KEY]).id == "id"
    assert verify([(name.encode(), value.encode()) for name, value in headers.items()], body, [KEY]).id == "id"
    told: list[object] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                told.append(verify(self.headers, self.rfile.read(int(self.headers["content-length"])), [KEY]).id)
            except NotVerified as error:
                told.append(error)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        for twice in (False, True):
            client = HTTPConnection("127.0.0.1", server.server_port)
            client.putrequest("POST", "/")
            for name, value in [*headers.items(), ("Content-Length", str(len(body)))]:
                client.putheader(name, value)
            if twice:
                client.putheader("Webhook-Signature", headers["Webhook-Signature"])
            client.endheaders(body)
            client.getresponse().read()
            client.close()
        server.shutdown()
        thread.join()
    assert told[0] == "id"
    assert isinstance(told[1], NotVerified)
