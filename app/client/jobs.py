"""Jobs: look, wait for their end, end them. For operators' keys."""

import time
from math import inf

from app.client.calls import at, get, post
from app.client.carriers import Pages
from app.client.errors import NotEndedError
from app.client.nouns import Carrier, Noun, lists, talks
from app.client.reading import one
from app.client.shapes import Job
from app.client.talks import Pause, Talk

SHORTEST, LONGEST = 0.1, 2.0  # seconds between looks
LAST_LOOK = 1.0  # seconds for the last, which comes when the time is up


class Jobs(Noun[Carrier]):
    """Long work, which goes on by itself."""

    @talks
    def get(self, id: str) -> Talk[Job]:
        """One, and how far it has come; NotFoundError when there is none."""
        return self._ask(get(at("jobs", id), one(Job)))

    @lists
    def list(self, *, page_size: int | None = None) -> Pages[Job]:
        """All, newest first."""
        return self._pages(Job, at("jobs"), limit=page_size)

    @talks
    def cancel(self, id: str, *, idempotency_key: str | None = None) -> Talk[Job]:
        """End it where it is: what it has done stays done. ConflictError when it has ended otherwise."""
        return self._ask(post(at("jobs", id, "cancel"), one(Job), key=idempotency_key))

    @talks
    def wait(self, id: str, *, seconds: float | None = None) -> Talk[Job]:
        """The job once it has ended, however it did: see its `status`. NotEndedError when that takes longer.

        UnavailableError when that is not known by then, for the service did not answer.
        """
        until = inf if seconds is None else time.monotonic() + seconds
        pause = SHORTEST
        while True:
            within = max(until - time.monotonic(), LAST_LOOK)
            job = yield from self._ask(get(at("jobs", id), one(Job)), within=within)
            left = until - time.monotonic()
            if job.has_ended:
                return job
            if left <= 0:
                raise NotEndedError(f"{id} is {job.status} after {seconds:g} s, and goes on by itself")
            yield Pause(min(pause, left))
            pause = min(pause * 1.5, LONGEST)
