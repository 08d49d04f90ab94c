"""The API as a process."""

import signal

import uvicorn

from app.api.app import create_app
from app.runtime import Runtime

DRAIN_SECONDS = 20  # longer than the longest statement's wait for a lock; then connections are cut


def configure(runtime: Runtime, host: str, port: int) -> uvicorn.Config:
    """How uvicorn runs the API: no access log (paths hold ids), no lifespan, our own logging."""
    return uvicorn.Config(
        create_app(runtime),
        host=host,
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )


def serve(runtime: Runtime, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT: then accept nothing new, finish what is being answered, and return."""
    # When it has drained, uvicorn raises the signal again, for whoever had the handler before: nobody must die of it.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        uvicorn.Server(configure(runtime, host, port)).run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
