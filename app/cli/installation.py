"""The installation that `duehook eval --existing` runs on: the one that the settings name, or the home's."""

from typing import TYPE_CHECKING

from app.cli.finding import find_service, load_settings
from app.cli.printing import wrong_use
from app.local import connection
from app.local.connection import Connection
from app.settings import Settings

if TYPE_CHECKING:
    from app.eval.installation import Installation, Pids


def existing_installation() -> "Installation":
    """Its database, API, broker and, where `duehook up` runs it in the home, its processes."""
    from app.eval.installation import Installation

    given, settings = load_settings(), find_service()
    assert settings.database_url is not None
    database_url = settings.database_url.get_secret_value()
    running = _of_home(settings, database_url)
    api_url = settings.api_url or (running.api_url if running else None)
    if api_url is None:
        wrong_use("DUEHOOK_API_URL is not set; with DUEHOOK_DATABASE_URL, set it to the API of that installation.")
    ours = running.broker_url if running else None
    broker = given.broker_url.get_secret_value() if given.broker_url else ours
    return Installation(
        name=f"the installation at {api_url}",
        api_url=api_url,
        database_url=database_url,
        broker_url=broker,
        pids=(lambda: _pids(settings)) if running else None,
        lease=settings.lease_seconds,
        deadline=settings.deadline_seconds,
        is_ours=False,
    )


def _of_home(settings: Settings, database_url: str) -> Connection | None:
    """The service that runs in the home, if it is the one of this database: another one's processes are not to die."""
    running = connection.read(settings.home)
    return running if running is not None and running.database_url == database_url else None


def _pids(settings: Settings) -> "Pids":
    running = connection.read(settings.home)
    return running.pids if running else {}
