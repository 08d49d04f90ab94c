"""The version of the schema that this code is for.

Read off the migrations' folders: Alembic, which knows it too, would cost every process a sixth of its start.
"""

from functools import cache
from importlib import resources

VERSION_TABLE = "schema_version"  # in schema duehook


@cache
def current_version() -> str:
    """The schema version this code was written for."""
    return max(step.name for step in (resources.files("app.ledger") / "migrations" / "sql").iterdir())
