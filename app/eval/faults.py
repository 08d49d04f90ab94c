"""The faults, a script each: what happens, on real processes, and how it is made sure that it does."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum

import redis

from app.broker import PREFIX, is_redis
from app.client import ConflictError
from app.eval.installation import Installation
from app.eval.pausing import paused
from app.eval.trial import CAREFUL, NAIVE, MissedError, Trial, wake_again

WORKERS, RELAY = "worker-delivery", "relay"
EVENTS = 40  # of most faults
QUEUE = f"{PREFIX}delivery"


class Need(StrEnum):
    """What a fault can't do without."""

    PIDS = "pids"
    BROKER = "broker"
    REDIS = "redis"
    TWO_WORKERS = "two workers"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Fault:
    """`disruptive` ones would hurt others who use the installation too."""

    name: str
    title: str
    run: Callable[[Trial], None]
    needs: frozenset[Need] = frozenset()
    disruptive: bool = False

    def obstacle(self, installation: Installation, *, disruptive: bool) -> str | None:
        """Why it can't or may not be run there; None when it can."""
        if self.disruptive and not (installation.is_ours or disruptive):
            return "it would hurt others who use this installation: --disruptive runs it all the same"
        checks = {
            Need.PIDS: _no_pids,
            Need.BROKER: _no_broker,
            Need.REDIS: _no_redis,
            Need.TWO_WORKERS: _no_two,
            Need.QUEUE: _no_queue,
        }
        return next((why for need in checks if need in self.needs and (why := checks[need](installation))), None)


def _no_pids(where: Installation) -> str | None:
    return None if where.pids else "its processes are not known: only `duehook up` in DUEHOOK_HOME tells them"


def _no_broker(where: Installation) -> str | None:
    return None if where.broker_url else "its broker is not known: set DUEHOOK_BROKER_URL"


def _no_redis(where: Installation) -> str | None:
    is_there = where.broker_url is not None and is_redis(where.broker_url)
    return None if is_there else "its broker is not Redis, and this fault is made with commands of Redis"


def _no_two(where: Installation) -> str | None:
    workers = len(where.pids().get(WORKERS, [])) if where.pids else 0
    return None if workers >= 2 else f"it has {workers} delivery worker, and another must take over from a stopped one"


def _no_queue(where: Installation) -> str | None:
    share = where.scan_share
    return f"the scan notices {share} % of its work, and this is about the queue" if share else None


def duplicate_task(trial: Trial) -> None:
    """Wake-ups that come again and again: while their requests are in the air, and when they are done."""
    trial.tell(CAREFUL, NAIVE, slow=0.5)
    with trial.celery() as celery, trial.fault():
        trial.post(EVENTS)
        trial.until(lambda: trial.answers(NAIVE, "applied") > 0, "requests were in the air")
        ids = [each["id"] for each in trial.deliveries()]
        for _ in range(5):
            wake_again(celery, ids)
        trial.tell(CAREFUL, NAIVE, slow=0)
        trial.until(lambda: trial.ledger.open() == 0, "all was delivered")
        for _ in range(5):
            wake_again(celery, ids)
        trial.post(5)  # behind them in the queue
        trial.until(lambda: trial.ledger.open() == 0, "what came behind them was delivered")
    trial.hit(10, f"The wake-up of {len(ids)} deliveries was published ten times more, five of them when all was done.")


def timeout_after_acceptance(trial: Trial) -> None:
    """The effect happens and the answer never comes."""
    stalls = EVENTS // 3
    trial.tell(CAREFUL, NAIVE, stall=stalls)
    with trial.fault():
        trial.post(EVENTS)
        for name in (CAREFUL, NAIVE):
            trial.until(lambda name=name: trial.answers(name, "stalled") >= stalls, "answers were kept back")  # type: ignore[misc]
    trial.hit(2 * stalls, f"{stalls} events had their effect at {CAREFUL} and at {NAIVE}, who then never answered.")


def throttled(trial: Trial) -> None:
    """429 with Retry-After, for two seconds."""
    seconds = 2.0
    with trial.fault():
        trial.tell(CAREFUL, NAIVE, throttle=seconds, retry_after=1)
        until = time.monotonic() + seconds
        trial.post(EVENTS)
        trial.until(lambda: trial.answers(CAREFUL, "throttled") > 0, "the receiver answered 429")
        trial.until(lambda: time.monotonic() > until, "it was over")
    times = trial.answers(CAREFUL, "throttled") + trial.answers(NAIVE, "throttled")
    trial.hit(times, f"{CAREFUL} and {NAIVE} answered 429 with Retry-After: 1 for {seconds:g} s, {times} times.")


def worker_killed(trial: Trial) -> None:
    """Every delivery worker at once: requests in the air, and wake-ups published that nobody has acknowledged."""
    trial.tell(CAREFUL, NAIVE, slow=trial.installation.deadline * 0.8)
    workers = trial.pids(WORKERS)
    with trial.fault():
        trial.post(EVENTS)
        trial.until(lambda: trial.answers(NAIVE, "applied") >= EVENTS // 4, "requests were in the air")
        with paused(workers):
            in_the_air = sum(each["status"] == "leased" for each in trial.deliveries())
            trial.post(EVENTS // 2)
            trial.until(lambda: _unclaimed(trial) == 0, "the wake-ups of more events were published")
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
    trial.tell(CAREFUL, NAIVE, slow=0)
    trial.hit(
        in_the_air,
        f"{len(workers)} delivery workers were killed with {in_the_air} requests in the air and the wake-ups of"
        f" {EVENTS // 2} more events not acknowledged.",
    )
    _until_replaced(trial, WORKERS, workers)


def _unclaimed(trial: Trial) -> int:
    return sum(each["status"] == "scheduled" and not each["publications"] for each in trial.deliveries())


def _until_replaced(trial: Trial, role: str, before: list[int]) -> None:
    def is_whole() -> bool:
        now = trial.pids(role)
        return len(now) == len(before) and not set(now) & set(before)

    trial.until(is_whole, f"the killed {role} ran again")


def receipts_refused(trial: Trial) -> None:
    """The receiver's database fails, before the effect or between it and the end of its transaction."""
    seconds = 2.0
    with trial.fault():
        trial.tell(CAREFUL, refuse_receipts=seconds)
        until = time.monotonic() + seconds
        trial.post(EVENTS)
        trial.until(lambda: trial.answers(CAREFUL, "failed") > 0, "a receipt was refused")
        trial.until(lambda: time.monotonic() > until, "it was over")
    failed = trial.answers(CAREFUL, "failed")
    trial.hit(failed, f"The database of {CAREFUL} refused {failed} receipts, some when the effect was applied already.")


def relay_killed(trial: Trial) -> None:
    """Between publish and mark: the broker is held up so that the relay is in the middle of it and is stopped there.

    Redis holds back every write (CLIENT PAUSE), so the relay, which has taken rows, waits in its publish. It is
    stopped, Redis goes on and publishes, and only then the relay is killed: wake-ups are out, their rows not marked.
    """
    assert trial.installation.broker_url
    with redis.Redis.from_url(trial.installation.broker_url) as broker, trial.fault():
        for tries in range(1, 11):
            if _killed_in_the_middle(trial, broker, tries):
                return
    raise MissedError("the relay was not met between publish and mark, in ten tries")


def _killed_in_the_middle(trial: Trial, broker: "redis.Redis", tries: int) -> bool:
    relays = trial.pids(RELAY)
    with ExitStack() as stack:
        with _held_up(broker):
            posted = set(trial.post(EVENTS // 4))
            trial.until(lambda: any(_taken(trial, posted)), "the relay had taken rows")
            time.sleep(0.05)  # from its commit to its publish; when that was too short, it is tried again
            stack.enter_context(paused(relays))
        taken = _taken(trial, posted)
        if not _happens(lambda: _arrived(trial, posted), 2.0) or not taken:
            return False
        for pid in relays:
            os.kill(pid, signal.SIGKILL)
        trial.post(EVENTS // 4)  # whom only another relay can notice
    trial.hit(
        len(taken),
        f"The relay was killed with {len(taken)} wake-ups published and their rows not marked (try {tries}).",
    )
    _until_replaced(trial, RELAY, relays)
    return True


@contextmanager
def _held_up(broker: "redis.Redis") -> Iterator[None]:
    """No write is done inside the block; the pause ends by itself, should this process be killed."""
    broker.client_pause(5000, all=False)
    try:
        yield
    finally:
        broker.client_unpause()


def _taken(trial: Trial, events: set[str]) -> list[int]:
    return [each["id"] for each in trial.deliveries() if each["event"] in events and each["taken"]]


def _arrived(trial: Trial, events: set[str]) -> bool:
    """Whether a worker has got one of these wake-ups, which no row is marked for."""
    return any(each["event"] in events and each["attempt"] for each in trial.deliveries())


def _happens(condition: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not (is_so := condition()) and time.monotonic() < until:
        time.sleep(0.02)
    return is_so


def broker_emptied(trial: Trial) -> None:
    """Redis loses everything while it is full of wake-ups that nobody has taken."""
    assert trial.installation.broker_url
    with (
        redis.Redis.from_url(trial.installation.broker_url) as broker,
        paused(trial.pids(WORKERS)),
        trial.fault(),
    ):
        for _ in range(4):  # a message each time; the relay has no more than one more wait in the broker
            trial.post(EVENTS // 4)
            trial.until(lambda: _unclaimed(trial) == 0, "the wake-ups were published")
        waiting = _length(broker)
        if trial.installation.is_ours:
            broker.flushall()
        else:
            for key in broker.scan_iter(match=f"{PREFIX}*", count=1000):
                broker.delete(key)
    trial.hit(waiting, f"Redis was emptied with {waiting} messages waiting for delivery workers.")


def _length(broker: "redis.Redis") -> int:
    found = broker.llen(QUEUE)
    assert isinstance(found, int)
    return found


def confirm_against_expiry(trial: Trial) -> None:
    """Reservations that are confirmed around the very moment at which they expire."""
    with ThreadPoolExecutor(8) as pool, trial.fault():
        list(pool.map(lambda number: _race(trial, number), range(48)))
    confirmed, late = len(trial.found.confirmed), len(trial.found.late)
    trial.hit(
        confirmed + late,
        f"{confirmed + late} confirms came within 0.1 s of their reservation's end: {confirmed} in time, {late} late.",
    )
    trial.until(lambda: all(each["status"] != "held" for each in trial.ledger.reservations()), "all had ended")
    for each in trial.ledger.reservations():
        for expected in trial.found.expected.values():
            expected.add(f"reservation.{each['status']}:{each['id']}:v{each['version']}")


def _race(trial: Trial, number: int) -> None:
    """A third is left alone, the others are confirmed a little before, at and after their end."""
    held = trial.client.reservations.hold(f"seat {number}", hold_seconds=1.0)
    trial.found.reservations.append(held.id)
    if number % 3 == 0:
        return
    offset = 0.1 * ((number % 24) / 23 * 2 - 1)
    time.sleep(max(0.0, held.expires_at.timestamp() + offset - 0.02 - time.time()))
    try:
        trial.client.reservations.confirm(held.id)
        trial.found.confirmed.add(held.id)
    except ConflictError:
        trial.found.late.add(held.id)


def lease_lost(trial: Trial) -> None:
    """A worker that stands still in the middle of slow requests for longer than its leases, and then goes on."""
    for tries in range(1, 6):
        if lost := _lost(trial):
            trial.hit(
                lost,
                f"A worker stood still with {lost} requests in the air until another had taken them over (try {tries}),"
                " and then told what had come of its own.",
            )
            return
    raise MissedError("the stopped worker had nothing in the air, in five tries")


def _lost(trial: Trial) -> int:
    """How many claims the worker has lost that was stopped."""
    trial.tell(CAREFUL, NAIVE, slow=trial.installation.deadline * 0.6)
    with trial.fault():
        posted = set(trial.post(EVENTS))
        trial.until(lambda: _are_claimed(trial, posted), "all requests were in the air")
        with paused(trial.pids(WORKERS)[:1]):
            trial.tell(CAREFUL, NAIVE, slow=0)
            held = _leased(trial, posted)
            trial.until(lambda: not held & _leased(trial, posted), "what it held was over")
            return sum(each["id"] in held and each["attempt"] > 1 for each in trial.deliveries())


def _are_claimed(trial: Trial, events: set[str]) -> bool:
    mine = [each for each in trial.deliveries() if each["event"] in events]
    return len(mine) == len(events) * len(trial.receivers) and all(each["attempt"] for each in mine)


def _leased(trial: Trial, events: set[str]) -> set[int]:
    """Those whose first claim runs, or has run out and was not taken over yet."""
    return {
        each["id"]
        for each in trial.deliveries()
        if each["event"] in events and each["status"] == "leased" and each["attempt"] == 1
    }


def consumer_paused(trial: Trial) -> None:
    """Nobody delivers for three seconds while events come, and then all of it is there at once."""
    seconds, parts = 3.0, 10
    with trial.fault(), paused(trial.pids(WORKERS)):
        began = time.monotonic()
        for part in range(1, parts + 1):
            trial.post(EVENTS // 2)
            time.sleep(max(0.0, began + seconds * part / parts - time.monotonic()))
    number = parts * EVENTS // 2
    trial.hit(number, f"All delivery workers stood still for {seconds:g} s, in which {number} events came.")


def poison_event(trial: Trial) -> None:
    """One whose sender dies of it, every time; others are in the air beside it."""
    poison = f"{trial.type}.poison"
    trial.tell(CAREFUL, poison=poison)
    with trial.fault():
        trial.post(EVENTS // 2)
        (killer,) = trial.post(1, suffix=".poison", but=[CAREFUL])
        trial.post(EVENTS // 2)
        trial.until(lambda: _is_dead(trial, killer), "the poison was buried")
    deaths = trial.answers(CAREFUL, "killed")
    trial.hit(deaths, f"One event killed whoever sent it to {CAREFUL}, {deaths} times; then it was buried.")


def _is_dead(trial: Trial, event: str) -> bool:
    return any(each["event"] == event and each["status"] == "dead" for each in trial.deliveries())


def rotated_secret(trial: Trial) -> None:
    """With an overlap at one receiver, which must notice nothing; without at the naive one, which learns it late."""
    trial.tell(CAREFUL, NAIVE, slow=0.3)
    with trial.fault():
        trial.post(EVENTS // 2)
        trial.until(lambda: trial.answers(NAIVE, "applied") > 0, "requests were in the air")
        overlapping = trial.client.endpoints.rotate_secret(trial.endpoints[CAREFUL].id, overlap_seconds=600)
        bare = trial.client.endpoints.rotate_secret(trial.endpoints[NAIVE].id, overlap_seconds=0)
        trial.tell(CAREFUL, NAIVE, slow=0)
        trial.post(EVENTS // 2)
        trial.until(lambda: trial.answers(NAIVE, "unverified") > 0, "a signature was rejected")
        trial.trust(CAREFUL, str(trial.endpoints[CAREFUL].secret), str(overlapping.secret))
        trial.trust(NAIVE, str(bare.secret))
    trial.trust(CAREFUL, str(overlapping.secret))
    trial.post(EVENTS // 4)
    rejected = trial.answers(NAIVE, "unverified")
    trial.hit(
        rejected,
        f"Both secrets were rotated with requests in the air; without an overlap {NAIVE} rejected {rejected} requests.",
    )


FAULTS: dict[str, Fault] = {
    each.name: each
    for each in (
        Fault(
            "duplicate-task",
            "a duplicate task: the same wake-up again and again",
            duplicate_task,
            frozenset({Need.BROKER}),
        ),
        Fault(
            "timeout-after-acceptance",
            "a timeout after remote acceptance: the effect happens, the answer never comes",
            timeout_after_acceptance,
        ),
        Fault("throttled", "429 with Retry-After", throttled),
        Fault(
            "worker-killed",
            "workers killed before their ack, with requests in the air",
            worker_killed,
            frozenset({Need.PIDS, Need.QUEUE}),
            True,
        ),
        Fault("receipt-refused", "a database failure in receipt creation, at the receiver", receipts_refused),
        Fault(
            "relay-killed",
            "the relay killed between publish and mark",
            relay_killed,
            frozenset({Need.PIDS, Need.BROKER, Need.REDIS, Need.QUEUE}),
            True,
        ),
        Fault(
            "broker-emptied",
            "the broker emptied, full of wake-ups",
            broker_emptied,
            frozenset({Need.PIDS, Need.BROKER, Need.REDIS, Need.QUEUE}),
            True,
        ),
        Fault("confirm-against-expiry", "confirm against expiry, around the very moment", confirm_against_expiry),
        Fault(
            "lease-lost",
            "leases lost in slow requests, by a worker that stands still",
            lease_lost,
            frozenset({Need.PIDS, Need.TWO_WORKERS, Need.QUEUE}),
            True,
        ),
        Fault(
            "consumer-paused",
            "consumers pause while events come, then a burst",
            consumer_paused,
            frozenset({Need.PIDS, Need.QUEUE}),
            True,
        ),
        Fault(
            "poison-event", "a poison event, which kills whoever sends it", poison_event, frozenset({Need.PIDS}), True
        ),
        Fault("rotated-secret", "secrets rotated in mid-flight", rotated_secret),
    )
}
