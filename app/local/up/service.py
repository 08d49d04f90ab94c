"""The processes of one run: started, watched over, drained; and what the world is told of them."""

import os
import time
from collections.abc import Callable, Mapping

from app.local import connection
from app.local.connection import Connection
from app.local.environment import environment_of
from app.local.services import LocalServices
from app.local.up import home, ports, roles
from app.local.up.child import Child
from app.local.up.drain import drain
from app.local.up.keys import Keys
from app.local.up.ports import Ports
from app.local.up.readiness import wait_until_ready
from app.local.up.roles import Role
from app.local.up.servers import Embedded
from app.local.up.stop import Stop
from app.local.up.supervisor import Supervisor
from app.settings import Settings

LOOK_SECONDS = 0.1
LOGS_SECONDS = 60.0
_DATABASE_URL = "DUEHOOK_DATABASE_URL"
_FLOWER_LOGIN = "DUEHOOK_FLOWER_LOGIN"
_LEDGER = (_DATABASE_URL, "DUEHOOK_SECRETS_KEY")


class Service:
    """Runs once; `settings` are complete, `servers` are running, `chosen` ports are free.

    `logins` are the URLs by which programs reach the ledger in place of its owner's, as far as they have their own.
    """

    def __init__(
        self,
        settings: Settings,
        servers: LocalServices,
        chosen: Ports,
        handed_out: Keys,
        logins: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._keys = handed_out
        self._say = say
        self._api_url = ports.url_of(settings.api_host, chosen.api)
        self._flower_url = ports.url_of(settings.api_host, chosen.flower)
        self._stop = Stop()
        self._supervisor = Supervisor(say, self._write)
        self._servers = [Embedded(server) for server in (servers.postgres, servers.valkey) if server]
        environment = _environment(settings, chosen)
        self._children = [
            Child(role, place, home=settings.home, environment=_of_role(role, environment, logins))
            for role in roles.roles(settings.deadline_seconds)
            for place in range(role.count)
        ]

    def run(self, tell: Callable[[Connection], None]) -> None:
        """Until a signal; `tell` gets the way in once everything is ready."""
        self._stop.listen()
        try:
            for child in self._children:
                child.start()
            probes = {"api": f"{self._api_url}/readyz", "flower": f"{self._flower_url}/healthcheck"}
            if wait_until_ready(self._children, probes, stopped=self._stop.requested):
                self._supervisor.watch([*self._servers, *self._children])
                tell(self._write())
                self._watch_over()
        finally:
            connection.remove(self._settings.home)
            drain(self._children, roles.STAGES, say=self._say, hurried=self._stop.hurried)

    def _watch_over(self) -> None:
        logs_at = time.monotonic()
        while not self._stop.requested():
            try:
                self._supervisor.tend()
                if time.monotonic() >= logs_at:
                    logs_at = time.monotonic() + LOGS_SECONDS
                    home.bound_logs(self._settings.home)
            except OSError as error:  # a full disk must not end what still runs
                self._say(f"The home can't be written to ({error}); everything else goes on.")
            time.sleep(LOOK_SECONDS)
        self._say("Draining: what is in the air ends, nothing begins. Once more stops at once.")

    def _write(self) -> Connection:
        settings = self._settings
        login, database, broker = settings.flower_login, settings.database_url, settings.broker_url
        assert login and database and broker
        user, _, password = login.get_secret_value().partition(":")
        pids = self._supervisor.pids()
        written = Connection(
            api_url=self._api_url,
            ops_url=f"{self._api_url}/ops",
            flower_url=self._flower_url,
            flower_user=user,
            flower_password=password,
            api_key=self._keys.api_key,
            operator_key=self._keys.operator_key,
            database_url=database.get_secret_value(),
            broker_url=broker.get_secret_value(),
            pids=pids,
            logs={role: str(settings.home / "logs" / f"{role}.log") for role in pids},
        )
        connection.write(settings.home, written)
        return written


def _of_role(role: Role, environment: Mapping[str, str], logins: Mapping[str, str]) -> dict[str, str]:
    """With the way into the ledger that the role needs; who needs none gets no key to what is sealed there either."""
    if role.name != "flower":
        environment = {name: each for name, each in environment.items() if name != _FLOWER_LOGIN}
    if role.login is None:
        return {name: each for name, each in environment.items() if name not in _LEDGER}
    return {**environment, _DATABASE_URL: logins.get(role.login, environment[_DATABASE_URL])}


def _environment(settings: Settings, chosen: Ports) -> dict[str, str]:
    """Ours, and on top of it what this run has found and chosen."""
    return {
        **os.environ,
        **environment_of(settings),
        "DUEHOOK_HOME": str(settings.home),
        "DUEHOOK_API_PORT": str(chosen.api),
        "DUEHOOK_FLOWER_PORT": str(chosen.flower),
    }
