"""An embedded Valkey (or Redis): append-only file on, on 127.0.0.1 only, gone with its owner."""

import signal
from collections.abc import Sequence
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.local.access import write_private
from app.local.binaries import find_valkey
from app.local.privilege import make_folder
from app.local.server import Server

SETTINGS = """\
bind 127.0.0.1
dir ./
save ""
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
"""


class Valkey(Server):
    """Valkey with its files in `home / "redis"`, which is what users and settings call it."""

    title = "Redis"
    slug = "redis"
    endings = ((signal.SIGTERM, 15.0), (signal.SIGKILL, 10.0))

    @property
    def url(self) -> str:
        """As Celery takes it."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def _prepare(self) -> Path:
        make_folder(self.folder)
        return find_valkey()

    def _arguments(self) -> Sequence[str | Path]:
        # In a file of our own: arguments can be read by every user of the machine, and hold the password.
        settings = self.home / "redis.conf"
        write_private(settings, f"{SETTINGS}port {self.port}\nrequirepass {self.password}\n")
        return [settings]

    def _answers(self) -> bool:
        with redis.Redis.from_url(self.url, socket_timeout=5, retry=Retry(NoBackoff(), 0)) as client:
            try:
                return bool(client.ping())
            except (
                redis.ConnectionError,
                redis.TimeoutError,
            ):  # not listening yet, or still reading its file
                return False
