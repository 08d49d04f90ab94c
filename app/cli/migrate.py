"""`duehook migrate`."""

import sys

from app.cli.finding import find_service
from app.cli.options import Json
from app.cli.printing import show_json


def migrate(json: Json = False) -> None:
    """Bring the database's schema to this version; safe to repeat, and from two places at once."""
    from app.cli.ledger import database_errors
    from app.ledger import migrate as ledger

    database_url = find_service().database_url
    assert database_url is not None
    with database_errors():
        version = ledger.migrate(database_url.get_secret_value(), waits=_say)
    if json:
        show_json({"version": version})
    else:
        print(f"The schema is at version {version}.")


def _say(holder: str) -> None:
    print(f"duehook: waiting for {holder}, which holds the lock of migrations.", file=sys.stderr)
