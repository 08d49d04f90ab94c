"""What endpoints with parked deliveries are looked at for, and what outcomes say about an endpoint's pace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection, Engine

from app.core.sets import Looked, look
from app.domain import pacing
from app.domain.identity import public_id
from app.domain.pacing import Heard, Pace
from app.domain.wakeups import Answer
from app.ledger import endpoint_changes as changes
from app.ledger import paces, parking
from app.ledger.database import in_transaction
from app.ledger.parking import Queue

log = structlog.get_logger("duehook.core")

AHEAD = timedelta(seconds=2)  # a slot is given away that long before it comes, at most
PROBES = 3  # that may be the next probe: somebody's open transaction may hold the first
LONGEST_WORDS = 500


Slots = Sequence[tuple[datetime, int]]


@dataclass(slots=True)
class Attended:
    """What a wake-up of endpoints came to; `slots` are the times at which to claim some of what is parked.

    Of those endpoints that have `more` nothing but places limits how many go on: whoever has some left may look again
    at once, and should before their next look, which wakes another.
    """

    looked: Looked = field(default_factory=Looked)
    slots: dict[int, Slots] = field(default_factory=dict)
    more: set[int] = field(default_factory=set)


def attend(engine: Engine, mosts: Mapping[int, int]) -> Attended:
    """Give at most so many slots of each endpoint away, and set when to look at it again; a repeat gives them again.

    What is given stays parked until somebody claims it: whoever dies with it costs a look.
    """
    attended = Attended()

    def act(connection: Connection, some: Sequence[int]) -> dict[int, Answer]:
        ours, theirs = parking.lock(connection, some)
        queues = parking.read(connection, {each: mosts[each] for each in some if each in ours})
        attended.slots.update((each.endpoint, _slots(each, mosts[each.endpoint])) for each in queues)
        attended.more.update(each.endpoint for each in queues if _has_more(each, mosts[each.endpoint]))
        _set_looks(connection, queues, mosts)
        answers = dict.fromkeys(theirs, Answer.LOCKED) | dict.fromkeys(ours, Answer.TAKEN)
        return {each: answers.get(each, Answer.GONE) for each in some}

    attended.looked = look(engine, list(mosts), act)
    return attended


def _slots(queue: Queue, most: int) -> Slots:
    if queue.deleted:
        return [(queue.pace.at, each) for each in queue.ids[:most]]  # the claim cancels them
    if not queue.enabled:
        return []
    times = pacing.slots(queue.pace, most, AHEAD)
    if queue.pace.closed_until is not None:
        times = times * PROBES
    return list(zip(times, queue.ids, strict=False))


def _has_more(queue: Queue, most: int) -> bool:
    limited = queue.pace.rate_per_second is not None or queue.pace.closed_until is not None
    return len(queue.ids) > most and (queue.deleted or (queue.enabled and not limited))


def _set_looks(connection: Connection, queues: Sequence[Queue], mosts: Mapping[int, int]) -> None:
    parking.end(connection, [each.endpoint for each in queues if not each.ids])
    parking.look_never(
        connection, [each.endpoint for each in queues if each.ids and not (each.enabled or each.deleted)]
    )
    parking.look_at(
        connection,
        {
            each.endpoint: _next_look(each, mosts[each.endpoint])
            for each in queues
            if each.ids and (each.enabled or each.deleted)
        },
    )


def _next_look(queue: Queue, most: int) -> datetime:
    """When the slots that are given away now are over: nobody else has to look before."""
    pace = queue.pace
    times = pacing.slots(pace, most, AHEAD)
    if queue.deleted or not times:
        return max(pace.at, pace.next_slot)
    if pace.rate_per_second is None or pace.closed_until is not None or len(queue.ids) <= len(times):
        return pace.at + AHEAD
    return times[-1] + pace.interval


@dataclass(frozen=True, slots=True)
class News:
    """What an outcome says about the endpoint at the revision that was sent to; `words` are for its owner."""

    endpoint: int
    revision: int
    heard: Heard
    words: str


def hear(engine: Engine, news: Sequence[News], disable_after: timedelta) -> list[News]:
    """Change the paces of endpoints by what came back from them, and disable those that are hopeless.

    In a transaction of its own, after the record: that one holds deliveries, which are locked after their endpoint.
    Lost in a crash between the two, the next outcome says it again. Only what was sent at the revision that the
    endpoint has counts. Returns what could not be told, for somebody holds the pace just now: tell it again.
    """

    def work(connection: Connection) -> tuple[set[int], dict[int, Pace]]:
        locked = paces.lock(connection, {each.endpoint for each in news})
        after = {
            seq: pacing.after(
                one.pace, [each.heard for each in news if (each.endpoint, each.revision) == (seq, one.revision)]
            )
            for seq, one in locked.items()
            if one.enabled
        }
        changed = {seq: pace for seq, pace in after.items() if pace != locked[seq].pace}
        paces.save(connection, changed)
        looks = {
            seq: pace.next_slot for seq, pace in changed.items() if pace.closed_until != locked[seq].pace.closed_until
        }
        parking.look_at(connection, looks)
        return set(locked), changed

    told, changed = in_transaction(engine, work)
    for seq, pace in changed.items():
        if pacing.hopeless(pace, disable_after):
            _disable(engine, pace, [each for each in news if each.endpoint == seq][-1])
    return [each for each in news if each.endpoint not in told]


def _disable(engine: Engine, pace: Pace, last: News) -> None:
    since = pace.failing_since or pace.at
    reason = (
        f"failing: {pace.failures} attempts in a row since {since:%Y-%m-%dT%H:%M:%SZ} were no delivery, the last was"
        f" {last.words[:LONGEST_WORDS]}"
    )
    disabled = in_transaction(
        engine, lambda connection: changes.disable(connection, last.endpoint, reason, revision=last.revision)
    )
    if disabled is not None:
        log.warning("endpoint_disabled", endpoint=public_id("end", last.endpoint), failures=pace.failures)
