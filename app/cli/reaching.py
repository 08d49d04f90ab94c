"""The API that a command asks: the one that the settings name, or the one that runs in the home."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.finding import load_settings
from app.cli.printing import fail, wrong_use
from app.local import connection
from app.settings import Settings

if TYPE_CHECKING:
    from app.client import Client

MOST_SHOWN = 500
Tenant = Annotated[
    str | None, typer.Option(metavar="NAME", help="Whose, with a key of all tenants; the home's has one.")
]
Limit = Annotated[int, typer.Option(min=1, max=MOST_SHOWN, help="How many at most.")]


@contextmanager
def service_of(tenant: str | None) -> Iterator["Client"]:
    """A client for one command; what the service says no to ends the command with a sentence."""
    from app.client import Client, DuehookError, InvalidError

    try:
        api_url, key = _way_in(load_settings(), tenant)
        with Client(api_url, key, tenant=tenant) as client:
            yield client
    except (InvalidError, ValueError) as error:
        wrong_use(f"{error}.")
    except DuehookError as error:
        fail(f"{error}.")


def _way_in(settings: Settings, tenant: str | None) -> tuple[str, str]:
    """Address and key: each as it is set, or as the home's service wrote it."""
    key = settings.api_key and settings.api_key.get_secret_value()
    if settings.api_url is not None:
        if not key:
            wrong_use("DUEHOOK_API_KEY is not set; with DUEHOOK_API_URL, set it to a key of that service.")
        return settings.api_url, key
    running = connection.read(settings.home)
    if running is None:
        fail(
            f"no service: nothing runs in {settings.home.absolute()}; start one with `duehook up`, "
            "or set DUEHOOK_API_URL and DUEHOOK_API_KEY, or DUEHOOK_HOME."
        )
    return running.api_url, key or (running.api_key if tenant is None else running.operator_key)
