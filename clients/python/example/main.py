"""Runs the service: DATABASE_URL, PORT (0: any), and PUSH_KEYS (with a space between) if Outlast pushes to it."""

from __future__ import annotations

import os
import signal
import threading

from bookings import Pool, keep_ledger, prepare, service


def main() -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    keys = os.environ.get("PUSH_KEYS", "").split()
    with Pool(os.environ["DATABASE_URL"], min_size=1, max_size=10, open=True) as pool:
        prepare(pool)
        with service(pool, keys, int(os.environ.get("PORT", "8080"))) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            print(f"listening on {server.server_port}", flush=True)
            if keys:
                stop.wait()
            else:
                keep_ledger(pool, stop)
            server.shutdown()


if __name__ == "__main__":
    main()
