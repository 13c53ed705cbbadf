"""What an adapter written for Python reads and prints: see bench/README.md.

The same as the crate `contract` is for Rust; an adapter is an object with these methods, and a call of `run`:

    describe()             what `describe` prints
    install(env)           the schema, in an empty database
    fill(env)              env.units waiting units
    writer(env, until)     one connection's loop while `monotonic() < until`; answers its transactions
    work(env, handler)     handles units by `handler.call(n)` until `stopped()`; calls `go()` when everything is ready
    client(env)            a context manager of an `async def commit(n)` that commits a business row and unit n

All but `describe` are coroutines.
"""

import asyncio
import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from time import monotonic

__all__ = ["NOTE", "Env", "Handler", "chunks", "go", "monotonic", "payload", "run", "stopped", "version"]

NOTE = "a business row of modest length"


@dataclass(frozen=True)
class Env:
    url: str
    best: bool
    units: int
    payload: int
    concurrency: int
    handler: str
    gate: str
    lease: float
    consumers: int
    writers: int
    batch: int
    emit: str
    seconds: float
    rate: float

    @classmethod
    def read(cls):
        given = os.environ
        emit = given.get("BENCH_EMIT", "own")
        if emit not in ("none", "own", "joined"):
            raise SystemExit(f"BENCH_EMIT={emit} is none of none, own, joined")
        if "BENCH_URL" not in given:
            raise SystemExit("BENCH_URL is not set")
        return cls(
            url=given["BENCH_URL"],
            best=given.get("BENCH_PROFILE") == "best",
            units=int(given.get("BENCH_UNITS", 0)),
            payload=int(given.get("BENCH_PAYLOAD", 200)),
            concurrency=int(given.get("BENCH_CONCURRENCY", 50)),
            handler=given.get("BENCH_HANDLER", "noop"),
            gate=given.get("BENCH_GATE", ""),
            lease=float(given.get("BENCH_LEASE", 30)),
            consumers=int(given.get("BENCH_CONSUMERS", 1)),
            writers=int(given.get("BENCH_WRITERS", 1)),
            batch=int(given.get("BENCH_BATCH", 1)),
            emit=emit,
            seconds=float(given.get("BENCH_SECONDS", 1)),
            rate=float(given.get("BENCH_RATE", 200)),
        )


class Handler:
    """What a contestant's own handler calls."""

    def __init__(self, env):
        self.handled = 0
        self._what = env.handler
        self._gate = env.gate
        self._hint_at = env.units * env.consumers

    async def call(self, n):
        """Handles unit n. Whatever calls it returns right after it."""
        if self._what == "ms":
            await asyncio.sleep(0.001)
        elif self._what == "stamp":
            say({"event": "start", "n": n, "at": now()})
        elif self._what == "gate":
            say({"event": "start", "n": n, "at": now()})
            while not os.path.exists(self._gate):
                await asyncio.sleep(0.002)
        self.handled += 1
        if self.handled == self._hint_at:
            say({"event": "handled"})


def run(adapter, loop=asyncio.run):
    """Does what BENCH_VERB says; `loop` runs a coroutine."""
    verb = os.environ.get("BENCH_VERB")
    if verb == "describe":
        say(adapter.describe())
        return
    env = Env.read()
    if verb in ("install", "fill"):
        loop(getattr(adapter, verb)(env))
    elif verb == "enqueue":
        loop(_enqueue(adapter, env))
    elif verb == "trickle":
        loop(_trickle(adapter, env))
    elif verb == "work":
        handler = Handler(env)
        loop(adapter.work(env, handler))
        say({"event": "end", "handled": handler.handled})
    else:
        raise SystemExit(f"there is no verb {verb}: see bench/README.md")


async def _enqueue(adapter, env):
    start = monotonic()
    writers = (adapter.writer(env, start + env.seconds) for _ in range(env.writers))
    transactions = sum(await asyncio.gather(*writers))
    say({"event": "end", "transactions": transactions, "seconds": monotonic() - start})


async def _trickle(adapter, env):
    async with adapter.client(env) as commit:
        await go()
        start = monotonic()
        committed = []
        for n in range(1, env.units + 1):
            early = start + (n - 1) / env.rate - monotonic()
            if early > 0:
                await asyncio.sleep(early)
            await commit(n)
            committed.append({"event": "committed", "n": n, "at": now()})
        for line in committed:
            say(line)


_input = None


def _stdin():
    """One reader of stdin for `go` and `stopped`: events for its first line and for its end."""
    global _input
    if _input is None:
        loop = asyncio.get_running_loop()
        line, end = _input = asyncio.Event(), asyncio.Event()

        def read():
            with suppress(OSError):
                while received := os.read(0, 4096):
                    if b"\n" in received:
                        loop.call_soon_threadsafe(line.set)
            with suppress(RuntimeError):  # The loop may be over already.
                loop.call_soon_threadsafe(line.set)
                loop.call_soon_threadsafe(end.set)

        # A daemon: a worker that fails ends although stdin is open.
        threading.Thread(target=read, daemon=True).start()
    return _input


async def go():
    """Says `ready`, and waits for the line that starts the clock."""
    say({"event": "ready"})
    await _stdin()[0].wait()


async def stopped():
    """Returns when stdin ends: the worker shall stop in good order."""
    await _stdin()[1].wait()


def say(line):
    """Prints a line, at once."""
    left = (json.dumps(line, separators=(",", ":")) + "\n").encode()
    # A runner that is gone needs no lines.
    with suppress(BrokenPipeError):
        while left:
            left = left[os.write(1, left) :]


def now():
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def payload(n, size):
    """A unit's payload, of about `size` bytes as JSON."""
    bare = len(f'{{"n":{n},"pad":""}}')
    return {"n": n, "pad": "x" * max(0, size - bare)}


def chunks(count, size):
    """The numbers 1..count in ranges of `size`."""
    for first in range(1, count + 1, size):
        yield range(first, min(first + size, count + 1))
