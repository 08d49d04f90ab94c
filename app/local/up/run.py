"""The life of `duehook up`: servers, schema, keys; then the processes, until a signal; then nothing is left."""

import os
from collections.abc import Callable
from contextlib import suppress

from app.ledger.migrate import migrate
from app.local.connection import Connection
from app.local.services import LocalServices
from app.local.up import home, keys, ports
from app.local.up.service import Service
from app.local.up.stop import interrupt_on_signals
from app.settings import Settings


def up(settings: Settings, *, say: Callable[[str], None], tell: Callable[[Connection], None]) -> None:
    """Run the service until a signal ends it. `say` gets what happens, a line each; `tell` the way in, once ready.

    Raises LocalServiceError or SettingsError, one sentence, when it can't start; nothing is left running then.
    """
    interrupt_on_signals()
    with suppress(KeyboardInterrupt), _servers(settings) as servers:
        home.tidy(servers.home)
        whole = home.complete(settings, servers)
        chosen = ports.choose(whole, say)
        migrate(servers.database_url)
        Service(whole, servers, chosen, keys.kept(whole), home.logins(servers), say).run(tell)


def _servers(settings: Settings) -> LocalServices:
    if settings.database_url is None:
        _forget_libpq_environment()
    given = {
        name: url.get_secret_value()
        for name in ("database_url", "broker_url")
        if (url := getattr(settings, name)) is not None
    }
    return LocalServices(settings.home.absolute(), **given)


def _forget_libpq_environment() -> None:
    """PGSSLMODE and its like were set with another server in mind; our URL says all there is to say."""
    for name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[name]
