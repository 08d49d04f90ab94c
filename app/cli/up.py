"""`duehook up`."""

import sys
import time
from contextlib import suppress
from typing import TextIO

from app.cli.finding import load_settings
from app.cli.options import Json
from app.cli.printing import fields
from app.local.connection import FILE, Connection


def up(json: Json = False) -> None:
    """Run the whole service on this machine until Ctrl-C or SIGTERM, which drain it."""
    from app.cli.ledger import database_errors
    from app.local.up.run import up as run

    settings = load_settings()
    began = time.monotonic()
    news = sys.stderr if json else sys.stdout
    _say(f"Starting duehook in {settings.home}.", news)

    def tell(connection: Connection) -> None:
        _say(f"Ready after {time.monotonic() - began:.1f} s; Ctrl-C drains and stops.", news)
        if json:
            _say(connection.to_json().rstrip(), sys.stdout)
            return
        summary = {
            "API": f"{connection.api_url}, documented at {connection.api_url}/docs",
            "API key": f"{connection.api_key} (tenant default, operator)",
            "Flower": f"{connection.flower_url}, user {connection.flower_user}, password {connection.flower_password}",
            "Home": f"{settings.home}, with {FILE} and logs/",
        }
        for line in fields(summary):
            _say(line, news)

    with database_errors():
        run(settings, say=lambda line: _say(line, news), tell=tell)
    _say("Stopped.", news)


def _say(line: str, where: TextIO) -> None:
    """Now, and whether or not anybody listens still: the service outlives the pipe that it reports to."""
    with suppress(OSError):
        print(line, file=where, flush=True)
