"""The embedded PostgreSQL and Redis as the supervisor sees them."""

from app.local.access import is_free
from app.local.errors import LocalServiceError
from app.local.server import Server


class Embedded:
    """Started again on the same files and under the same URL, for that is the one everybody knows."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pid = server.pid

    @property
    def role(self) -> str:
        """What users call it."""
        return self._server.slug

    @property
    def running(self) -> bool:
        """Whether it lives, answering or not."""
        return self._server.running

    @property
    def pid(self) -> int:
        """Of the latest start."""
        return self._pid

    def start(self) -> None:
        """Does not wait for its first answer: all who use it try again by themselves."""
        if not is_free(self._server.port):
            raise LocalServiceError(f"another program has taken port {self._server.port} meanwhile")
        self._server.launch()
        self._pid = self._server.pid

    def how_it_ended(self) -> str:
        """For a sentence that begins with its name."""
        return f"(pid {self._pid}) died"
