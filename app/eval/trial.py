"""One fault being tried: events for a fan-out of subscribers, something that goes wrong, the wait until all is done.

The scripts in `app.eval.faults` are written in its words.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from celery import Celery

from app import settings as settings_of
from app.broker import TASK, make_celery
from app.client import Client, Endpoint, NewEvent
from app.demo.producer import SHORTEST_SCHEDULE
from app.demo.receivers import ReceiverProcess
from app.domain.identity import number
from app.domain.wakeups import Kind, Lane
from app.eval.installation import Installation
from app.eval.ledger import Ledger

# A fan-out of three: one that deduplicates, one that does not, and one beside them that nothing happens to.
CAREFUL, NAIVE, BYSTANDER = "careful", "naive", "bystander"
RECEIVERS = (CAREFUL, NAIVE, BYSTANDER)
DEDUPLICATING = (CAREFUL, BYSTANDER)
LOOK_SECONDS = 0.02


class MissedError(Exception):
    """The fault could not be brought about; the message says what was waited for in vain."""


@dataclass(slots=True)
class Attempted:
    """What was done and seen, for the judgement. Times are of the database's clock, in seconds since 1970.

    `expected` are the business keys that must have an effect at each receiver; `confirmed` and `late` the reservations
    whose confirm was answered with 200 and with 409.
    """

    name: str
    began: float
    began_fault: float | None = None
    ended_fault: float | None = None
    ended: float = 0.0
    hits: int = 0
    happened: list[str] = field(default_factory=list)
    endpoints: dict[str, int] = field(default_factory=dict)
    expected: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in RECEIVERS})
    events: set[str] = field(default_factory=set)
    reservations: list[str] = field(default_factory=list)
    confirmed: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    missed: str | None = None
    settled: bool = False


class Trial:
    """Endpoints are made when it begins, and deleted by `close`."""

    def __init__(
        self,
        name: str,
        installation: Installation,
        client: Client,
        ledger: Ledger,
        receivers: Mapping[str, ReceiverProcess],
        *,
        tell: Callable[[str], None],
        patience: float,
    ) -> None:
        self.installation = installation
        self.client = client
        self.ledger = ledger
        self.receivers = receivers
        self.patience = patience
        self.found = Attempted(name, ledger.now())
        self.type = f"eval.{name.replace('-', '_')}"
        self._tell = tell
        self._posted = 0
        self._before = {each: receiver.ledger.counts().answers for each, receiver in receivers.items()}
        self.endpoints: dict[str, Endpoint] = {each: self._subscribe(each) for each in receivers}

    def _subscribe(self, name: str) -> Endpoint:
        types = [self.type, f"{self.type}.*"]
        if self.found.name == "confirm-against-expiry":
            types.append("reservation.*")
        made = self.client.endpoints.create(self.url(name), types, retry_schedule=SHORTEST_SCHEDULE)
        self.found.endpoints[name] = _seq("end", made.id)
        self.trust(name, str(made.secret))
        return made

    def url(self, name: str) -> str:
        """Where a receiver gets the events of this fault: a path of its own, so that secrets are its own."""
        return f"{self.receivers[name].url}/{self.found.name}"

    def trust(self, name: str, *secrets: str) -> None:
        """Have a receiver accept signatures by these secrets only."""
        path = f"/duehook/{self.found.name}"
        self.receivers[name].tell(secrets={path: list(secrets)})

    def tell(self, *names: str, **what: Any) -> None:
        """Change how receivers behave."""
        for name in names:
            self.receivers[name].tell(**what)

    def post(self, number: int, *, suffix: str = "", delay: float | None = None, but: Sequence[str] = ()) -> list[str]:
        """Post so many events at once, whose effects must happen at all receivers `but` these; returns their ids."""
        first, self._posted = self._posted, self._posted + number
        keys = [f"{self.found.name}:{place}" for place in range(first, first + number)]
        wanted = [NewEvent(self.type + suffix, {"key": key}, key=key, delay_seconds=delay) for key in keys]
        made = [each.id for each in self.client.events.post_many(wanted)]
        self.found.events.update(made)
        for name in RECEIVERS:
            if name not in but:
                self.found.expected[name].update(keys)
        return made

    @contextmanager
    def fault(self) -> Iterator[None]:
        """What goes wrong goes wrong inside the block; recovery is counted from its end."""
        self.found.began_fault = self.ledger.now()
        try:
            yield
        finally:
            self.found.ended_fault = self.ledger.now()

    def hit(self, times: int, sentence: str) -> None:
        """It has happened, so often, in these words."""
        self.found.hits += times
        self.found.happened.append(sentence)
        self._tell(f"  {sentence}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for it; raises MissedError when it does not come true in time."""
        until = time.monotonic() + self.patience
        while not condition():
            if time.monotonic() > until:
                raise MissedError(f"waited {self.patience:g} s in vain until {what}")
            time.sleep(LOOK_SECONDS)

    def answers(self, name: str, *kinds: str) -> int:
        """How many requests a receiver has answered so since this trial began."""
        now, before = self.receivers[name].ledger.counts().answers, self._before[name]
        return sum(now.get(kind, 0) - before.get(kind, 0) for kind in kinds)

    def deliveries(self) -> Sequence[Mapping[str, Any]]:
        """All of this fault, as the ledger has them."""
        return self.ledger.deliveries(self.found.endpoints.values())

    def settle(self) -> None:
        """Wait until nothing of it is open; it stays unsettled when that takes too long."""
        try:
            self.until(lambda: self.ledger.open() == 0, "nothing was open any more")
            self.found.settled = True
        except MissedError:
            pass
        self.found.ended = self.ledger.now()

    def close(self) -> None:
        """Delete what is finished, so that a tenant's limit of endpoints is none for this."""
        if self.found.settled:
            for endpoint in self.endpoints.values():
                self.client.endpoints.delete(endpoint.id)

    def pids(self, role: str) -> list[int]:
        """The processes of a role, now."""
        assert self.installation.pids, "a fault that needs pids is not tried without"
        return list(self.installation.pids().get(role, []))

    @contextmanager
    def celery(self) -> Iterator[Celery]:
        """To publish wake-ups with, as the relay does."""
        made = make_celery(settings_of.load(broker_url=self.installation.broker_url))
        try:
            yield made
        finally:
            made.close()


def wake_again(celery: Celery, deliveries: Sequence[int]) -> None:
    """The same wake-up once more, as a broker does that has lost an acknowledgement."""
    celery.send_task(TASK[Kind.DELIVERY], args=[list(deliveries), [0] * len(deliveries)], queue=Lane.DELIVERY.value)


def _seq(prefix: Any, public: str) -> int:
    found = number(prefix, public)
    assert found is not None, public
    return found
