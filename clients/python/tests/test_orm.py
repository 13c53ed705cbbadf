from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import outlast


def test_the_connection_behind_a_session_of_sqlalchemy_is_one_in_a_transaction(database: str) -> None:
    engine = create_engine("postgresql+psycopg://" + database.removeprefix("postgresql://"))
    with Session(engine) as session:
        session.execute(text("insert into booking values ('sqlalchemy')"))
        emitted = outlast.emit(session.connection().connection.driver_connection, "orm", 1)  # type: ignore[arg-type]
        session.rollback()
        count = text("select (select count(*) from booking where id = 'sqlalchemy') + (select count(*) from outlast.event where id = :id)")
        assert session.scalar(count, {"id": emitted.id}) == 0
        session.execute(text("insert into booking values ('sqlalchemy')"))
        emitted = outlast.emit(session.connection().connection.driver_connection, "orm", 1)  # type: ignore[arg-type]
        session.commit()
        assert session.scalar(count, {"id": emitted.id}) == 2
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(outlast.NoTransaction):
            outlast.emit(connection.connection.driver_connection, "orm", 1)  # type: ignore[arg-type]
    engine.dispose()
