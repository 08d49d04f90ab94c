"""Brings the schema to this version."""

from collections.abc import Callable
from importlib import resources

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from app.ledger.database import NAMES, connect_engine
from app.ledger.version import VERSION_TABLE, current_version

_LOCK = "hashtext('duehook.migrate')"
_HOLDER = f"""
    SELECT 'process ' || pid || ' of PostgreSQL (user ' || usename
           || coalesce(', ' || nullif(application_name, ''), '') || ')'
      FROM pg_locks JOIN pg_stat_activity USING (pid)
     WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND database = datid AND datname = current_database()
       AND (classid::bigint << 32 | objid::bigint) = {_LOCK}::bigint"""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(resources.files("app.ledger.migrations")))
    return config


def migrate(database_url: str, waits: Callable[[str], None] = lambda _: None) -> str:
    """Bring the schema to this version and return it; safe to repeat and from two places at once.

    All steps are one transaction under a lock: one that fails leaves the schema as it was, two at once queue. Who has
    to is told by `waits` for whom: the lock is advisory, so that anybody may hold it who can log in.
    """
    config = _config()
    engine = connect_engine(database_url, application_name="duehook migrate", session=NAMES)
    try:
        with engine.begin() as connection:
            _lock(connection, waits)
            connection.exec_driver_sql("CREATE SCHEMA IF NOT EXISTS duehook")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()
    return current_version()


def _lock(connection: Connection, waits: Callable[[str], None]) -> None:
    if connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({_LOCK})").scalar_one():
        return
    if holder := connection.exec_driver_sql(_HOLDER).scalars().first():
        waits(holder)
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def database_version(database_url: str) -> str | None:
    """The schema version the database has; None before the first migration."""
    engine = connect_engine(database_url, application_name="duehook migrate", session=NAMES)
    try:
        with engine.connect() as connection:
            opts = {"version_table": VERSION_TABLE, "version_table_schema": "duehook"}
            context = MigrationContext.configure(connection, opts=opts)
            return context.get_current_revision()
    finally:
        engine.dispose()
