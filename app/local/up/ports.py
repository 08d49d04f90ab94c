"""The ports that the API and Flower listen on."""

import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass

from app.local.access import kept_port
from app.local.errors import LocalServiceError
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Ports:
    """Free when they were chosen; the processes themselves find out if that has changed."""

    api: int
    flower: int


def choose(settings: Settings, say: Callable[[str], None]) -> Ports:
    """Take the ports as set. 0, or a default that is taken, becomes a free one that the home keeps; `say` tells.

    Raises LocalServiceError when a port that was asked for by number can't be had.
    """
    return Ports(_choose(settings, "api_port", "The API", say), _choose(settings, "flower_port", "Flower", say))


def _choose(settings: Settings, name: str, title: str, say: Callable[[str], None]) -> int:
    port: int = getattr(settings, name)
    if port and _is_free(settings.api_host, port):
        return port
    setting = f"DUEHOOK_{name.upper()}"
    if port and name in settings.model_fields_set:
        raise LocalServiceError(
            f"Port {port} of {settings.api_host} is taken: end the program that listens there, "
            f"or set {setting} to another port, or to 0 for any free one."
        )
    chosen = kept_port(settings.home / f"{name.removesuffix('_port')}.port")
    why = f"port {port} is taken" if port else f"{setting} is 0"
    say(f"{title} listens on port {chosen}: {why}.")
    return chosen


def _is_free(host: str, port: int) -> bool:
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        why = error.strerror or "unknown host"
        raise LocalServiceError(
            f"Nothing can listen on {host}, port {port} ({why}): set DUEHOOK_API_HOST to an address of this machine, "
            "and ports that this user may open."
        ) from error
    return True


def url_of(host: str, port: int) -> str:
    """How a program on this machine gets there."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
