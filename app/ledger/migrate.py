"""Brings the schema to this version."""

from importlib import resources

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from app.ledger.database import NAMES, connect_engine

VERSION_TABLE = "schema_version"  # in schema duehook


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(resources.files("app.ledger.migrations")))
    return config


def migrate(database_url: str) -> str:
    """Bring the schema to this version and return it; safe to repeat and from two places at once.

    All steps are one transaction under a lock: one that fails leaves the schema as it was, two at once queue.
    """
    config = _config()
    engine = connect_engine(database_url, application_name="duehook migrate", session=NAMES)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('duehook.migrate'))")
            connection.exec_driver_sql("CREATE SCHEMA IF NOT EXISTS duehook")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()
    return current_version()


def current_version() -> str:
    """The schema version this code was written for."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


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
