"""Where a local server listens and the password it asks for, both kept in the home between runs."""

import os
import random
import secrets
import socket
from pathlib import Path

from app.local.errors import LocalServiceError

# Below the range the kernel takes outgoing ports from: one of those could sit on ours at the next start.
PORTS = range(15_000, 32_000)


def kept_password(path: Path) -> str:
    """The password in `path`, made on first use."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(24))
    return path.read_text()


def kept_port(path: Path) -> int:
    """The port in `path` while it is free, so that a restart keeps its URL; otherwise another, then kept."""
    last = int(path.read_text()) if path.exists() else None
    if last is not None and is_free(last):
        return last
    port = free_port()
    write_private(path, str(port))
    return port


def free_port() -> int:
    """A port that nobody on this machine listens on right now."""
    for port in random.sample(PORTS, 200):
        if is_free(port):
            return port
    raise LocalServiceError(
        f"No free port of 127.0.0.1 between {PORTS.start} and {PORTS.stop}: end what listens there."
    )


def is_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:port; connections still closing don't count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def write_private(path: Path, text: str) -> None:
    """Puts `text` into `path`, readable by its owner only; a reader sees the old text or the new, whole."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    new.replace(path)
