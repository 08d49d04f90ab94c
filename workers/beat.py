"""When beat sends the sweeps: about every so many seconds, and not while nobody takes them."""

import random
import time
from typing import Any

import structlog
from celery.beat import ScheduleEntry, Scheduler

log = structlog.get_logger("duehook.beat")

WAITING = 4  # messages in a sweep's queue that are enough: more than a beat or two send by chance
JITTER = (0.8, 1.2)  # of the time between two: beats that were started together must not sweep together


class Sweeps(Scheduler):  # type: ignore[misc]
    """Goes by a clock that nobody sets, and lets nothing expire.

    Celery's own scheduler goes by the host's time, and so does a message's `expires`: a beat whose clock is minutes
    behind would send what every worker throws away unread, and one whose clock is set back would send nothing for as
    long. What bounds the queue while no worker takes from it is a look at it before each message.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._due: dict[str, float] = {}  # by name of the entry; the first comes at any time within its period
        super().__init__(*args, **kwargs)

    def tick(self, *_args: Any, **_kwargs: Any) -> float:
        """Send what is due; returns the seconds until the next look."""
        for name, entry in self.schedule.items():
            period = entry.schedule.seconds
            if self._due.setdefault(name, time.monotonic() + period * random.random()) <= time.monotonic():
                self._due[name] = time.monotonic() + period * random.uniform(*JITTER)
                self.apply_entry(entry, producer=self.producer)
        next_due = min(self._due.values(), default=float("inf"))
        return float(min(max(0.0, next_due - time.monotonic()), self.max_interval))

    def apply_async(self, entry: ScheduleEntry, producer: Any = None, advance: bool = True, **kwargs: Any) -> object:
        """Send one, unless enough of them wait; None when it was not sent."""
        queue = entry.options["queue"]
        if (waiting := self._waiting(queue)) >= WAITING:
            log.warning("sweep_held_back", sweep=entry.name, queue=queue, waiting=waiting)
            return None
        sent: object = super().apply_async(entry, producer=producer, advance=advance, **kwargs)
        return sent

    def _waiting(self, queue: str) -> int:
        """Declared as the workers do, which changes nothing: kombu finds no queue under a prefix when only asked."""
        declared = self.producer.channel.queue_declare(queue=queue, durable=True, auto_delete=False)
        return int(declared.message_count)
