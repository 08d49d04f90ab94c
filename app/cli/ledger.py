"""A command's connection to the ledger."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from app.cli.printing import fail
from app.ledger import service
from app.ledger.database import connect_engine, is_lost
from app.settings import Settings


@contextmanager
def database_errors() -> Iterator[None]:
    """End the command with a sentence when the database is away or forbids something; other errors are bugs."""
    try:
        yield
    except DBAPIError as error:
        if is_lost(error):
            fail(f"the database does not answer: {_first_line(error.orig)}")
        if isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
            fail(f"the database forbids it: {_first_line(error.orig)}")
        raise
    except psycopg.errors.InsufficientPrivilege as error:  # of a statement that was sent without SQLAlchemy
        fail(f"the database forbids it: {_first_line(error)}")


@contextmanager
def ledger_of(settings: Settings) -> Iterator[Engine]:
    """One connection to a ledger whose schema is ours; needs no secrets key, for it reads no secrets."""
    assert settings.database_url is not None
    engine = connect_engine(settings.database_url.get_secret_value(), application_name="duehook command", pool_size=1)
    with database_errors():
        try:
            with engine.begin() as connection:
                service.check_schema(connection)
            yield engine
        except service.UnfitError as unfit:
            fail(f"{unfit}.")
        finally:
            engine.dispose()


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().splitlines()[0]
