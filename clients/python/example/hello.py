import os
import threading

from psycopg_pool import ConnectionPool

import outlast

stop = threading.Event()
with ConnectionPool(os.environ["DATABASE_URL"], open=True) as pool:
    with pool.connection() as connection:
        connection.execute("create table if not exists guest (name text, greeted boolean)")
    outlast.register(pool, "greeter", ["greeted"])

    with pool.connection() as connection:  # one transaction
        connection.execute("insert into guest values ('Ada', false)")
        outlast.emit(connection, "greeted", {"name": "Ada"})  # both commit, or neither

    def greet(event: outlast.Claimed) -> None:
        name = event.json()["name"]
        with pool.connection() as connection:
            connection.execute("update guest set greeted = true where name = %s", [name])
            # Last: raises when somebody newer owns the event, and nothing is kept.
            outlast.complete(connection, event.token, event.id)
        print("hello", name)
        stop.set()

    outlast.work(pool, "greeter", greet, stop=stop)
