"""The demo: the service as a process of its own, 500 bookings by 8 clients, a SIGKILL on the way, and the account at the end,
from the tables. `./run demo --language python` starts the server and sets the environment. With `--push` the events come in
by `outlast run --only push`; without, the service claims them.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

BOOKINGS = 500
CLIENTS = 8
DEADLINE_S = 60
PUSHED = "--push" in sys.argv
KEY = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()

ACCOUNT = """
select (select count(*) from booking) as booked,
  (select count(distinct booking) from ledger) as handled,
  (select count(*) from (select from ledger group by booking having count(*) > 1) d) as twice,
  (select count(*) from booking b where not exists (select from ledger l where l.booking = b.id)) as lost,
  (select count(*) from ledger l where not exists (select from booking b where b.id = l.booking)) as phantom"""


class Service:
    """The service as a process, which may be killed and started again."""

    def __init__(self, database: str) -> None:
        self._database = database
        # The same after a restart: that is where pushes go.
        self.port = free_port()
        self._start()
        atexit.register(lambda: self._process.kill())
        self.killed = 0

    def _start(self) -> None:
        program = [sys.executable, str(Path(__file__).with_name("main.py"))]
        env = {"DATABASE_URL": self._database, "PORT": str(self.port), "PUSH_KEYS": KEY if PUSHED else ""}
        self._process = subprocess.Popen(program, env=os.environ | env, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith("listening"):
            raise RuntimeError("the service ended before it listened")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.killed += 1
        self._start()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def answers(self, nth: int) -> bool:
        body = json.dumps({"guest": f"Zoë {nth} 😀"})
        client = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            client.request("POST", "/bookings", body.encode(), {"idempotency-key": f"request {nth}"})
            return client.getresponse().status == 201
        except (OSError, HTTPException):
            return False  # The service is away: the same request again.
        finally:
            client.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def push(database: str, port: int, folder: str, deadline: float) -> subprocess.Popen[bytes]:
    """Makes the service an endpoint, and starts who pushes to it: what is emitted once it reads the log."""
    endpoint = f'url = "http://127.0.0.1:{port}/push"\ntypes = ["booking.confirmed"]\nkey = "ledger"\n'
    Path(folder, "outlast.toml").write_text(f"[cluster.endpoint.ledger]\n{endpoint}")
    env = os.environ | {"OUTLAST_EGRESS_ALLOW": "127.0.0.1", "OUTLAST_SECRET_LEDGER": KEY, "OUTLAST_LOG": "error"}
    program = [os.environ["OUTLAST_TEST_PROGRAM"], "--database", database]
    subprocess.run([*program, "apply", "--yes"], cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen([*program, "run", "--only", "push"], cwd=folder, env=env)
    atexit.register(process.kill)
    with psycopg.connect(database, autocommit=True) as connection:
        while not connection.execute("select 1 from outlast.consumer where name = 'push/ledger'").fetchall():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("nobody pushes to the service")
            time.sleep(0.05)
    return process


def ask(service: Service, client: int, deadline: float) -> None:
    """Asks for its share, each until it is answered; after a third of them the service is killed."""
    for nth in range(client, BOOKINGS, CLIENTS):
        if nth == BOOKINGS // 3:
            service.kill()
        while not service.answers(nth):
            if time.monotonic() > deadline:
                raise TimeoutError(f"booking {nth} was not answered")
            time.sleep(0.02)


def main() -> int:
    began = time.monotonic()
    deadline = began + DEADLINE_S
    server = os.environ["OUTLAST_TEST_PG"]
    name = f"bookings_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"create database {name}".encode())
    database = make_conninfo(server, dbname=name)
    migrate = [os.environ["OUTLAST_TEST_PROGRAM"], "migrate", "--database", database]
    subprocess.run(migrate, check=True, stdout=subprocess.DEVNULL)

    service = Service(database)
    folder = tempfile.TemporaryDirectory()
    pushing = push(database, service.port, folder.name, deadline) if PUSHED else None
    with ThreadPoolExecutor(CLIENTS) as clients:
        for asked in [clients.submit(ask, service, client, deadline) for client in range(CLIENTS)]:
            asked.result()
    with psycopg.connect(database, autocommit=True) as connection:
        # Waits until there is an entry for each booking; else the account says what is missing.
        while time.monotonic() < deadline:
            row = connection.execute("select count(distinct booking) from ledger").fetchone()
            if row is not None and row[0] >= BOOKINGS:
                break
            time.sleep(0.05)
        cursor = connection.cursor(row_factory=psycopg.rows.dict_row)
        account: dict[str, Any] = cursor.execute(ACCOUNT).fetchone() or {}
    service.stop()
    if pushing is not None:
        pushing.terminate()
        pushing.wait()
    folder.cleanup()

    right = account == {"booked": BOOKINGS, "handled": BOOKINGS, "twice": 0, "lost": 0, "phantom": 0}
    if "--json" in sys.argv:
        shown = {"language": "python", "pushed": PUSHED, "asked": BOOKINGS, **account, "killed": service.killed, "right": right}
        print(json.dumps(shown))
    else:
        print(f"asked for            {BOOKINGS} bookings, by {CLIENTS} clients; the service was killed {service.killed} times")
        print(f"events               {'pushed to the service, signed' if PUSHED else 'claimed by the service'}")
        print(f"booked               {account['booked']}")
        print(f"handled              {account['handled']}")
        print(f"lost {account['lost']} · phantom {account['phantom']} · handled twice {account['twice']}")
        verdict = "every booking was handled once" if right else "THE ACCOUNT IS WRONG"
        print(f"{verdict}: {time.monotonic() - began:.1f} s")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
