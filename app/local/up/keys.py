"""The API keys that a run hands out: made once, kept in the home, made anew only when they open nothing any more."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from app.core import keys
from app.domain.auditing import Action
from app.domain.states import KeyScope
from app.local.access import write_private
from app.local.user import command_actor
from app.runtime import open_runtime
from app.settings import Settings

TENANT = "default"


@dataclass(frozen=True, slots=True)
class Keys:
    """`api_key` may do everything for one tenant, `operator_key` for all."""

    api_key: str
    operator_key: str


def kept(settings: Settings) -> Keys:
    """Those of the home; raises SettingsError when this run and the ledger don't fit together."""
    runtime = open_runtime(settings, application_name="duehook up", pool_size=1)
    try:
        with runtime.engine.begin() as connection:
            return Keys(
                _kept(connection, settings.home / "api.key", TENANT),
                _kept(connection, settings.home / "operator.key", keys.EVERY_TENANT),
            )
    finally:
        runtime.close()


def _kept(connection: Connection, path: Path, tenant: str) -> str:
    if path.exists():
        key = path.read_text()
        known = keys.find(connection, key)
        if known is not None and (known.tenant, known.scope) == (tenant, KeyScope.OPERATOR):
            return key
    made, key = keys.create(connection, tenant, KeyScope.OPERATOR)
    keys.note(connection, command_actor(), Action.KEY_CREATED, made)
    write_private(path, key)
    return key
