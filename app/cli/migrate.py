"""`duehook migrate`."""

import os
import sys
from typing import Annotated

import typer

from app.cli.finding import find_service
from app.cli.options import Json
from app.cli.printing import show_json, wrong_use

PASSWORDS = {
    "api": "POSTGRES_API_PASSWORD",
    "relay": "POSTGRES_RELAY_PASSWORD",
    "worker": "POSTGRES_WORKER_PASSWORD",
}
Logins = Annotated[
    bool,
    typer.Option(
        "--logins",
        help="Also make a login of the database for each of api, relay and worker, with what it may do there and no"
        f" more, and the password in {', '.join(PASSWORDS.values())}; a repeat sets the passwords anew.",
    ),
]


def migrate(logins: Logins = False, json: Json = False) -> None:
    """Bring the database's schema to this version; safe to repeat, and from two places at once."""
    from app.cli.ledger import database_errors
    from app.ledger import migrate as ledger
    from app.ledger.logins import login_of, make_logins

    passwords = _passwords() if logins else {}
    database_url = find_service().database_url
    assert database_url is not None
    with database_errors():
        version = ledger.migrate(database_url.get_secret_value(), waits=_say)
        if logins:
            make_logins(database_url.get_secret_value(), passwords)
    names = {program: login_of(program) for program in passwords}
    if json:
        show_json({"version": version} | ({"logins": names} if logins else {}))
    else:
        print(f"The schema is at version {version}.")
        for program, name in names.items():
            print(f"{program} may log in as {name}.")


def _passwords() -> dict[str, str]:
    passwords = {program: os.environ.get(name, "") for program, name in PASSWORDS.items()}
    for program, password in passwords.items():
        if not password:
            wrong_use(f"{PASSWORDS[program]} is not set; set it to the password that duehook's {program} logs in with.")
    return passwords


def _say(holder: str) -> None:
    print(f"duehook: waiting for {holder}, which holds the lock of migrations.", file=sys.stderr)
