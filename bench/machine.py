"""What the figures were measured on."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
import redis

from app.local.up.roles import cores

LIBRARIES = ("duehook", "celery", "kombu", "sqlalchemy", "psycopg", "httpx", "httptools", "uvloop")


@dataclass(frozen=True, slots=True)
class Machine:
    """`load` is the average number of processes that wanted a core in the minute before."""

    cores: int
    model: str
    memory_gb: float
    kernel: str
    load: float


def this_machine() -> Machine:
    """As it is now."""
    memory = int(_after("MemTotal:", "/proc/meminfo").split()[0]) / 1024 / 1024
    model = _after("model name", "/proc/cpuinfo").lstrip("\t :")
    return Machine(cores(), model, round(memory, 1), platform.release(), round(os.getloadavg()[0], 2))


def versions(connection: psycopg.Connection[Any], broker_url: str) -> dict[str, str]:
    """Of everything that takes part, with what PostgreSQL does at a commit."""
    with redis.Redis.from_url(broker_url, decode_responses=True) as client:
        info: Any = client.info("server")
    shown = {
        name: connection.execute(f"SHOW {name}").fetchall()[0][0]
        for name in ("server_version", "fsync", "synchronous_commit", "full_page_writes")
    }
    return {
        "python": platform.python_version(),
        "postgres": f"{shown.pop('server_version')} ({', '.join(f'{name} {value}' for name, value in shown.items())})",
        "redis": f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}",
        **{name: version(name) for name in LIBRARIES},
        "redis-py": version("redis"),
    }


def _after(name: str, file: str) -> str:
    found = (line for line in Path(file).read_text().splitlines() if line.startswith(name))
    return next(found, name).removeprefix(name).strip()
