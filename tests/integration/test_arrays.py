"""Lists reach PostgreSQL as they are, whatever is in them."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DataError

from app.domain.states import Outcome

AT = datetime(2026, 12, 1, 23, 59, 59, 999999, UTC)
LISTS: list[tuple[str, list[Any]]] = [
    ("bigint", [0, -1, 2**63 - 1, -(2**63)]),
    ("bigint", []),
    ("smallint", [None, 200, None]),
    ("float8", [0.1, -1e300, 5e-324]),
    ("boolean", [True, False, None]),
    ("uuid", [UUID(int=0), UUID(int=2**128 - 1)]),
    ("timestamptz", [AT, AT.replace(microsecond=0), datetime(1, 1, 1, tzinfo=UTC)]),
    ("timestamptz", [datetime(2026, 12, 1, tzinfo=timezone(timedelta(hours=-5, minutes=-30)))]),
    ("interval", [timedelta(), timedelta(microseconds=-1), timedelta(days=4000, microseconds=1)]),
    ("bytea", [b"", b"\0\\\xff{,}\"'", None]),
    ("text", ["", " ", "NULL", "null", None, '{"a": [1, 2]}', "a,b", "\\", '\\"', "a\nb\t\r\x01", "¡Olé! \N{ROCKET}"]),
    ("text", [Outcome.DELIVERED, "%s %(x)s :x $1"]),
]


@pytest.mark.parametrize(("kind", "values"), LISTS)
def test_a_list_arrives_as_it_is(engine: Engine, kind: str, values: list[Any]) -> None:
    with engine.connect() as connection:
        for _ in range(7):  # from the sixth time on as a prepared statement
            assert connection.execute(text(f"SELECT CAST(:values AS {kind}[])"), {"values": values}).scalar() == values


def test_one_statement_is_prepared_once_whatever_its_lists_hold(engine: Engine) -> None:
    with engine.connect() as connection:
        for values in ([1], [2**40], [None], []):
            for _ in range(7):
                connection.execute(text("/* arrays */ SELECT CAST(:values AS bigint[])"), {"values": values})
        number = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '/* arrays */%%'"
        assert connection.exec_driver_sql(number).scalar() == 1


def test_a_nul_is_refused_and_never_cuts_what_is_behind_it(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(DataError, match="NUL"):
        connection.execute(text("SELECT CAST(:values AS text[])"), {"values": ["a\0b", "c"]})


def test_what_is_no_plain_value_is_refused(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(KeyError):
        connection.execute(text("SELECT CAST(:values AS text[])"), {"values": [object()]})
