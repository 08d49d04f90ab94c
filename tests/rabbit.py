"""A real RabbitMQ for tests, where Debian's rabbitmq-server is installed."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.waiting import wait_until

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
CONFIG = "loopback_users = none\nvm_memory_high_watermark.absolute = 512MB\ndisk_free_limit.absolute = 50MB\n"


class Rabbit:
    """RabbitMQ on free ports of 127.0.0.1, its files in `home`; `start` again after `stop` or `kill`."""

    def __init__(self, home: Path) -> None:
        if not SERVER.exists():
            pytest.skip("rabbitmq-server is not installed: apt-get install rabbitmq-server")
        self._home = home
        self._port, distribution, self._mapper = (_free_port() for _ in range(3))
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}//"
        (home / "rabbitmq.conf").write_text(CONFIG)
        (home / "plugins").write_text("[].")
        self._environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "RABBITMQ_NODENAME": f"duehook-{self._port}@localhost",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(home / "generated"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "ERL_EPMD_PORT": str(self._mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        mapper = shutil.which("epmd")  # ours, or the node starts one that outlives it
        assert mapper
        self._mapping = subprocess.Popen([mapper, "-port", str(self._mapper)], env=self._environment)
        self.start()

    def start(self) -> None:
        with (self._home / "out.log").open("ab") as output:
            self._popen = subprocess.Popen(
                [SERVER], env=self._environment, cwd=self._home, stdout=output, stderr=output, start_new_session=True
            )
        wait_until(lambda: _listens(self._port), deadline=60, what="RabbitMQ listens")

    def kill(self) -> None:
        """As a crash would."""
        os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait(10)

    def close(self) -> None:
        """Nothing of it is left, its port mapper included."""
        self.kill()
        self._mapping.kill()
        self._mapping.wait(10)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
