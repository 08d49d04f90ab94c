"""The service's own processes, as they are measured: started and stopped as often as a benchmark wants."""

import os
import secrets
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path

from app.local.services import LocalServices
from app.local.up.child import Child
from app.local.up.drain import drain
from app.local.up.readiness import wait_until_ready
from app.local.up.roles import STAGES, Role, command_of, cores
from app.settings import PREFIX


class Service:
    """Relay, one worker for expiries, and one for deliveries on each core; nothing of the user's own takes part."""

    def __init__(self, home: Path, services: LocalServices) -> None:
        self.key = secrets.token_hex(32)
        self._home = home
        environment = environment_of(home, services, self.key)
        self._children = [
            Child(role, place, home=home, environment=environment) for role in _roles() for place in range(role.count)
        ]

    def start(self) -> None:
        """Returns once everybody is ready; raises LocalServiceError when somebody ends or needs too long."""
        with chdir(self._home):  # where no .env of somebody else's is
            for child in self._children:
                child.start()
        wait_until_ready(self._children, {}, stopped=lambda: False)

    def stop(self) -> None:
        """In order, what is in the air is ended; a repeat does nothing."""
        drain(self._children, STAGES, say=print, hurried=lambda: False)

    def kill(self) -> None:
        """At once, whatever is in the air; a repeat does nothing."""
        for child in self._children:
            child.kill()

    @property
    def pids(self) -> dict[str, list[int]]:
        """Of the latest start, by role."""
        found: dict[str, list[int]] = {}
        for child in self._children:
            found.setdefault(child.role, []).append(child.pid)
        return found


def _roles() -> list[Role]:
    return [
        Role("relay", command_of("relay")),
        Role("worker-expiry", command_of("worker", "expiry"), patience=30),
        Role("worker-delivery", command_of("worker", "delivery"), patience=30, count=cores()),
    ]


def environment_of(home: Path, services: LocalServices, key: str) -> Mapping[str, str]:
    """The variables of a process that is measured: nothing of the user's own settings."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "PG"))}
    return {
        **ours,
        "DUEHOOK_HOME": str(home),
        "DUEHOOK_DATABASE_URL": services.database_url,
        "DUEHOOK_BROKER_URL": services.broker_url,
        "DUEHOOK_SECRETS_KEY": key,
        "DUEHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    }
