"""What a run will do, decided by its seed before it begins: the load, and the sequence of faults."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

WORKERS = ("worker-delivery-1", "worker-delivery-2", "worker-expiry-1", "worker-expiry-2", "worker-upkeep")
PROCESSES = ("relay", *WORKERS, "beat", "api", "scan")
LEASE = 4.0  # seconds; a process may be frozen for less and for longer
CANARY = "xkCANARYPayload"  # in every event's data; it may come up in no log


@dataclass(frozen=True, slots=True)
class Receiver:
    """One receiver, what it is like, and whose events it gets."""

    name: str
    tenant: str
    slow: float = 0.0


RECEIVERS = (
    Receiver("acme-quick", "acme"),
    Receiver("acme-slow", "acme", slow=0.05),
    Receiver("acme-other", "acme"),
    Receiver("globex-quick", "globex"),
    Receiver("globex-other", "globex"),
)
TENANTS = tuple(dict.fromkeys(each.tenant for each in RECEIVERS))
EVENTS = ("order.*", "reservation.*")
RETRIES = [1.0, 1.0, 2.0, 2.0] + [3.0] * 46  # so many (the most there may be), that nothing dies of faults alone

SERVERS = ("database", "broker")
WAYS = (
    *(4 * SERVERS),  # that of everybody at once
    *(each.name for each in RECEIVERS),
    *(f"{process} to {server}" for process in PROCESSES for server in SERVERS),
)

# What each kind of fault is done to; a kind without a target stands for itself.
KINDS: dict[str, Sequence[str]] = {
    "killed": PROCESSES,
    "frozen-shortly": PROCESSES,
    "frozen-past-the-lease": PROCESSES,
    "redis-emptied": (),
    "redis-killed": (),
    "redis-restarted-without-its-data": (),
    "redis-frozen": (),
    "redis-read-only": (),
    "redis-out-of-memory": (),
    "postgres-killed": (),
    "postgres-connections-cut": (),
    "postgres-statements-cancelled": (),
    "postgres-disk-full": (),
    "postgres-rows-locked": (),
    "network-cut": WAYS,
    "network-refused": WAYS,
    "network-slow": WAYS,
    "network-black-hole": WAYS,
    "network-half-open": WAYS,
    "answer-cut": tuple(each.name for each in RECEIVERS),
    "receiver-killed": tuple(each.name for each in RECEIVERS),
    "receiver-failing": tuple(each.name for each in RECEIVERS),
    "receiver-throttling": tuple(each.name for each in RECEIVERS),
    "receiver-never-answering": tuple(each.name for each in RECEIVERS),
    "clock-off": (),
}

# Seconds that a kind of fault lasts, where they are other than usual: a worker needs a while to start.
LONG = {"frozen-past-the-lease": (LEASE + 1, LEASE + 3), "clock-off": (8.0, 12.0)}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what, to whom, for how long, and the seconds of peace before it."""

    number: int
    kind: str
    target: str
    seconds: float
    peace: float


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a producer does, so many seconds after the start. `ids` are keys of events, or a reservation's id."""

    at: float
    what: str  # single, list, sql, rolled-back, scheduled, hold, confirm, release
    tenant: str
    ids: tuple[str, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """`minutes` is what the load is spread over; `only` is one kind of fault."""

    seed: int
    deliveries: int
    faults: int
    minutes: float
    only: str | None = None

    def fault_sequence(self) -> Iterator[Fault]:
        """Every kind before any comes again."""
        chance = random.Random(f"{self.seed} faults")
        kinds: list[str] = []
        for number in range(self.faults):
            if not kinds:
                kinds = [each for each in KINDS if self.only in (None, each)]
                chance.shuffle(kinds)
            kind = kinds.pop()
            target = chance.choice(KINDS[kind] or (kind,))
            seconds = chance.uniform(*LONG.get(kind, (0.3, 3.0)))
            yield Fault(number, kind, target, round(seconds, 2), round(chance.uniform(0, 2), 2))

    def steps(self) -> list[Step]:
        """In order of time."""
        return sorted(self._steps(), key=lambda step: step.at)

    def _steps(self) -> Iterator[Step]:
        chance = random.Random(f"{self.seed} load")
        left, number = float(self.deliveries), 0
        spread = self.minutes * 60
        while left > 0:
            number += 1
            tenant = chance.choice(TENANTS)
            each = sum(receiver.tenant == tenant for receiver in RECEIVERS)
            at = chance.uniform(0, spread)
            what = chance.choices(
                ("single", "list", "sql", "rolled-back", "scheduled", "hold"), (40, 4, 10, 3, 10, 33)
            )[0]
            if what == "hold":
                left -= each
                yield from _reservation(chance, at, tenant, f"rsv_chaos{number:06}")
                continue
            size = {"list": 40, "sql": 5, "rolled-back": 5}.get(what, 1)
            left -= 0 if what == "rolled-back" else size * each
            keys = tuple(f"{what}:{number:06}:{place}" for place in range(size))
            yield Step(at, what, tenant, keys, round(chance.uniform(1, 15), 2) if what == "scheduled" else 0.0)


def _reservation(chance: random.Random, at: float, tenant: str, id: str) -> Iterator[Step]:
    """A third is confirmed, some of these about when they end; some are released; the others expire."""
    seconds = round(chance.uniform(2, 12), 2)
    yield Step(at, "hold", tenant, (id,), seconds)
    what = chance.choice(("confirm", "release", "", "")) if chance.random() < 0.8 else "confirm"
    if what:
        yield Step(at + chance.uniform(0.1, 1.05) * seconds, what, tenant, (id,))


def payload_of(key: str) -> dict[str, Any]:
    """The data of an event; it follows from its key, so that a repeat has the same bytes."""
    return {"key": key, "note": f"{CANARY} ¡Olé! \N{ROCKET}"}
