"""The demo: the service as a process of its own, 500 bookings by 8 clients, a SIGKILL on the way, and the account at the end,
from the tables. `./run demo --language python` starts the server and sets the environment.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
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
        self._start()
        atexit.register(lambda: self._process.kill())
        self.killed = 0

    def _start(self) -> None:
        program = [sys.executable, str(Path(__file__).with_name("main.py"))]
        env = os.environ | {"DATABASE_URL": self._database, "PORT": "0"}
        self._process = subprocess.Popen(program, env=env, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said, _, port = self._process.stdout.readline().strip().rpartition(" ")
        if said != "listening on":
            raise RuntimeError("the service ended before it listened")
        self._port = int(port)

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
        client = HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            client.request("POST", "/bookings", body.encode(), {"idempotency-key": f"request {nth}"})
            return client.getresponse().status == 201
        except (OSError, HTTPException):
            return False  # The service is away: the same request again.
        finally:
            client.close()


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

    right = account == {"booked": BOOKINGS, "handled": BOOKINGS, "twice": 0, "lost": 0, "phantom": 0}
    if "--json" in sys.argv:
        print(json.dumps({"language": "python", "asked": BOOKINGS, **account, "killed": service.killed, "right": right}))
    else:
        print(f"asked for            {BOOKINGS} bookings, by {CLIENTS} clients; the service was killed {service.killed} times")
        print(f"booked               {account['booked']}")
        print(f"handled              {account['handled']}")
        print(f"lost {account['lost']} · phantom {account['phantom']} · handled twice {account['twice']}")
        verdict = "every booking was handled once" if right else "THE ACCOUNT IS WRONG"
        print(f"{verdict}: {time.monotonic() - began:.1f} s")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
