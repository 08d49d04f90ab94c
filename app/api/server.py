"""The API as a process."""

import signal
import socket
import sys

import uvicorn

from app.api.app import create_app
from app.api.connections import Protocol
from app.process import set_up
from app.runtime import Runtime
from app.settings import SettingsError

DRAIN_SECONDS = 20  # longer than the longest statement's wait for a lock; then connections are cut

# A thread that reads a long list holds the interpreter for so long at a time, 5 ms by default; a short request needs it
# a dozen times, and would be late by that. Shorter still costs more than it brings: at 0.5 ms every request a tenth.
SWITCH_SECONDS = 0.001


def configure(runtime: Runtime, host: str, port: int) -> uvicorn.Config:
    """How uvicorn runs the API: no access log (paths hold ids), no lifespan, our own logging."""
    return uvicorn.Config(
        create_app(runtime),
        host=host,
        port=port,
        loop="uvloop",
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )


def serve(runtime: Runtime, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT: then accept nothing new, finish what is being answered, and return.

    Raises `SettingsError` when the port is taken.
    """
    config = configure(runtime, host, port)
    listening = _listen(host, port)
    # When it has drained, uvicorn raises the signal again, for whoever had the handler before: nobody must die of it.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    set_up()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listen(host: str, port: int) -> socket.socket:
    """Bound here and not by uvicorn, which would tell of a port that is taken in its own words and exit code."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048
        )
    except OSError as error:
        raise SettingsError(
            f"the API can't listen on {host} port {port} ({error.strerror}): set DUEHOOK_API_PORT to a free one"
        ) from None
