"""The service's programs as their own logins, in the server that a test uses."""

from functools import cache

from sqlalchemy import make_url

from app.ledger.logins import ROLES, make_logins, url_of

PASSWORD = "of a program of the tests"


def as_program(database_url: str, program: str) -> str:
    """The URL of this database for the api, the relay or a worker."""
    url = make_url(database_url)
    _made(url.set(database="postgres").render_as_string(hide_password=False))
    return url_of(database_url, program, PASSWORD)


@cache
def _made(server_url: str) -> None:
    make_logins(server_url, dict.fromkeys(ROLES, PASSWORD))
