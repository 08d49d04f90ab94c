"""The connections that wait for their next request, by origin."""

from app.domain.urls import Origin
from app.sending.connection import Connection

IDLE_LIMIT = 1024
IDLE_LIMIT_PER_ORIGIN = 256  # as many as are in flight at once, or each burst would dial anew


class IdleConnections:
    """Keeps the youngest connections, in all and per origin, and gives back the last one used first.

    The last used is the least likely to have been closed by its receiver, and leaves the surplus to grow old.
    """

    def __init__(self, limit: int = IDLE_LIMIT, limit_per_origin: int = IDLE_LIMIT_PER_ORIGIN) -> None:
        self._limit, self._limit_per_origin = limit, limit_per_origin
        self._by_origin: dict[Origin, list[Connection]] = {}
        self._by_age: dict[Connection, None] = {}

    def take(self, origin: Origin) -> Connection | None:
        """An open connection to `origin`; those found unusable on the way are closed."""
        while waiting := self._by_origin.get(origin):
            connection = waiting[-1]
            self.forget(connection)
            if connection.usable():
                return connection
            connection.abort()
        return None

    def put(self, connection: Connection) -> None:
        """Keeps a connection, or closes it (or the one that waits longest) when there are enough."""
        waiting = self._by_origin.setdefault(connection.origin, [])
        waiting.append(connection)
        self._by_age[connection] = None
        if len(waiting) > self._limit_per_origin:
            self._drop(waiting[0])
        elif len(self._by_age) > self._limit:
            self._drop(next(iter(self._by_age)))

    def forget(self, connection: Connection) -> None:
        """Takes out a connection that closed or is used; one that isn't here is no matter."""
        if connection not in self._by_age:
            return
        del self._by_age[connection]
        waiting = self._by_origin[connection.origin]
        if waiting[-1] is connection:
            waiting.pop()
        else:
            waiting.remove(connection)
        if not waiting:
            del self._by_origin[connection.origin]

    def close(self) -> None:
        """Closes all of them."""
        for connection in list(self._by_age):
            self._drop(connection)

    def __len__(self) -> int:
        return len(self._by_age)

    def _drop(self, connection: Connection) -> None:
        self.forget(connection)
        connection.abort()
