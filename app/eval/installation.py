"""Where the faults are run: a service started for it, or one that runs already."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from app.demo.service import SETTINGS, running_service

Pids = Mapping[str, Sequence[int]]
# As short as may be, so that what takes a lease takes three seconds.
OWN_DEADLINE, OWN_LEASE = 1.5, 3.0
SHORT: Mapping[str, str] = {
    **SETTINGS,
    "DUEHOOK_DEADLINE_SECONDS": str(OWN_DEADLINE),
    "DUEHOOK_LEASE_SECONDS": str(OWN_LEASE),
    "DUEHOOK_PUBLISH_LEASE_SECONDS": "2",
}


@dataclass(frozen=True, slots=True)
class Installation:
    """`pids` tells the processes by role, now; None where nobody knows them. `lease` and `deadline` in seconds.

    `scan_share` is the per cent of the work that the scan notices, and no relay or worker.
    """

    name: str
    api_url: str
    database_url: str
    broker_url: str | None
    pids: Callable[[], Pids] | None
    lease: float
    deadline: float
    is_ours: bool
    scan_share: int = 0

    @property
    def database_place(self) -> str:
        """Which database, without its password."""
        return place_of(self.database_url)


@contextmanager
def an_installation_of_our_own(home: Path) -> Iterator[Installation]:
    """Started in `home`, ready inside the block, stopped after it."""
    with running_service(home, SHORT) as service:
        found = service.connection
        yield Installation(
            name="a service of its own",
            api_url=found.api_url,
            database_url=found.database_url,
            broker_url=found.broker_url,
            pids=lambda: service.connection.pids,
            lease=OWN_LEASE,
            deadline=OWN_DEADLINE,
            is_ours=True,
        )


def place_of(url: str) -> str:
    """Host and port of a URL, and nothing secret."""
    parts = urlsplit(url)
    return f"{parts.hostname or 'localhost'}:{parts.port or ''}{parts.path}"
