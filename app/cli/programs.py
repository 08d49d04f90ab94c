"""`api`, `relay`, `worker`, `scan`, `beat`, `flower`: each becomes its program, so that signals go straight to it."""

import os
from typing import Annotated, NoReturn

import typer

from app.cli.finding import find_service, load_settings
from app.cli.printing import wrong_use
from app.domain.wakeups import Lane
from app.local.environment import environment_of
from app.local.up.roles import command_of


def api() -> None:
    """Serve the HTTP API."""
    _become("api")


def relay() -> None:
    """Publish wake-ups for what is due soon."""
    _become("relay")


def worker(lanes: Annotated[list[str] | None, typer.Argument(metavar="LANE")] = None) -> None:
    """Do the work of these lanes (expiry, delivery, upkeep), or of all."""
    for lane in lanes or []:
        if lane not in list(Lane):
            wrong_use(f"{lane!r} is not a lane: use {', '.join(Lane)}.")
    _become("worker", *(lanes or []))


def scan() -> None:
    """Notice and do what is due without a broker, as far as `duehook wakeups` says; rest otherwise."""
    _become("scan")


def beat() -> None:
    """Start the regular sweeps."""
    _become("beat", needs="broker_url")


def flower() -> None:
    """Serve Flower, which shows what the workers are doing."""
    _become("flower", needs="broker_url")


def _become(program: str, *arguments: str, needs: str = "database_url") -> NoReturn:
    """Beat and Flower talk to the broker alone: whoever names one need not let them at the database."""
    given = load_settings()
    settings = find_service() if getattr(given, needs) is None else given
    command = command_of(program, *arguments)
    os.execve(command[0], command, os.environ | environment_of(settings))
