"""When everything that was started can do its work."""

import http.client
import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from app.local.errors import LocalServiceError
from app.local.up.child import Child

DEADLINE = 60.0
HTTP_PATIENCE = 5.0


def wait_until_ready(
    children: Iterable[Child], probes: dict[str, str], *, stopped: Callable[[], bool], deadline: float = DEADLINE
) -> bool:
    """Wait for every child: an answer from its URL in `probes` where its role has one, else its ready file.

    Returns False when it was stopped meanwhile; raises LocalServiceError when a child ends or needs too long.
    """
    waiting = list(children)
    until = time.monotonic() + deadline
    while waiting := [child for child in waiting if not _is_ready(child, probes)]:
        if stopped():
            return False
        if time.monotonic() > until:
            late = ", ".join(sorted({child.role for child in waiting}))
            raise LocalServiceError(f"Not ready after {deadline:g} s: {late}; see {waiting[0].log}.")
        time.sleep(0.05)
    return True


def _is_ready(child: Child, probes: dict[str, str]) -> bool:
    if not child.running:
        raise LocalServiceError(
            f"{child.role} {child.how_it_ended()} while starting: {child.last_word()} (more in {child.log})"
        )
    url = probes.get(child.role)
    return child.ready if url is None else answers(url)


def answers(url: str) -> bool:
    """Whether a GET of this URL gives 200."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=HTTP_PATIENCE)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
