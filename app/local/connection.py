"""`connection.json` in the home: where the service that runs there is, and how to get in."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from app.local.access import write_private
from app.local.errors import LocalServiceError

FILE = "connection.json"


@dataclass(frozen=True, slots=True)
class Connection:
    """What programs drive the service by. Its names are public; it exists only while the service is ready."""

    api_url: str
    ops_url: str
    flower_url: str
    flower_user: str
    flower_password: str
    api_key: str
    operator_key: str
    database_url: str
    broker_url: str
    pids: Mapping[str, Sequence[int]]
    logs: Mapping[str, str]

    def to_json(self) -> str:
        """As it stands in the file."""
        return json.dumps(asdict(self), indent=2) + "\n"


def write(home: Path, connection: Connection) -> None:
    """Put it into the home, readable by its owner only; a reader sees the old one or the new, whole."""
    write_private(home / FILE, connection.to_json())


def remove(home: Path) -> None:
    """Take it away; a repeat does nothing."""
    (home / FILE).unlink(missing_ok=True)


def read(home: Path) -> Connection | None:
    """What the service in `home` wrote; None when none is ready there. Raises LocalServiceError if it can't be read."""
    try:
        return Connection(**json.loads((home / FILE).read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not what `duehook up` writes"
        raise LocalServiceError(
            f"{home / FILE} can't be read ({why}): stop duehook there and start it again."
        ) from None
