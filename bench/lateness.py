"""How late work is that was scheduled, and how long what is due now takes from its commit to the wire."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.spread import Spread, spread_of
from bench.stage import Stage
from bench.subscribers import Subscription

PATIENCE = 30.0
INSERT = """INSERT INTO duehook.events (tenant, type, data, due_at)
            VALUES (%s, %s, '{"order":1}', duehook.now() + make_interval(secs => %s))
            RETURNING id, extract(epoch FROM due_at)::float8"""


@dataclass(frozen=True, slots=True)
class Lateness:
    """`milliseconds` from when it should arrive to its first byte at the sink; `per_second` as it came about."""

    events: int
    per_second: float
    milliseconds: Spread
    lost: int
    repeated: int


def measure(stage: Stage, wanted: Sequence[Subscription], *, rate: float, seconds: float, ahead: float) -> Lateness:
    """Insert events one by one at this rate, each due `ahead` seconds later, or at once when that is 0.

    What is scheduled should arrive when it is due, what is due at once when its commit is confirmed.
    """
    began = time.monotonic()
    expected = {}
    for number in _paced(rate, seconds):
        whose = wanted[number % len(wanted)]
        row = stage.connection.execute(INSERT, [whose.tenant, whose.type, ahead]).fetchall()[0]
        expected[row[0]] = row[1] if ahead else time.time()
    reached = len(expected) / (time.monotonic() - began)
    stage.settle(ahead + PATIENCE)
    received = stage.receiver.received(expected)
    late = spread_of(at - expected[event] for event, at in received.first.items())
    return Lateness(len(expected), round(reached, 1), late, received.lost, received.repeated)


def _paced(rate: float, seconds: float) -> Iterator[int]:
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        yield number
