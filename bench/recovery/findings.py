"""From what was seen and what came of it to the figures of the report."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.sending.idle import IDLE_LIMIT
from app.settings import Settings
from bench.recovery.cohort import Cohort
from bench.recovery.effects import Effects
from bench.recovery.fresh import Fresh
from bench.recovery.report import Drain, Lags, Moment, Use
from bench.recovery.watch import Sample
from bench.spread import spread_of
from bench.throughput import Throughput, per_thousand

POOLS = {"duehook relay": 2, "duehook worker expiry": 12, "duehook worker delivery": 12}  # of one process
IN_FLIGHT: int = Settings.model_fields["max_in_flight"].default  # nobody's own settings take part
BROKER = 20  # connections of one process to Redis, at most
OWN = 8  # sockets with which a process talks to itself


@dataclass(frozen=True, slots=True)
class Run:
    """When processes were started and were ready, and what the time from then until the end of it all cost."""

    started: float
    ready: float
    cpu: Mapping[str, float]
    others: float
    cohort: Cohort
    fresh: Fresh
    samples: Sequence[Sample]
    effects: Effects


def drain(run: Run, steady: Throughput) -> Drain:
    """How fast it went, next to the rate without all that."""
    expired, recorded = run.effects.expired, run.effects.recorded
    ends = [expired[each] for each in run.cohort.reservations if each in expired]
    overdue = [*run.cohort.events, *(end.event for end in ends)]
    sent = [recorded[each] for each in overdue if each in recorded]
    began, over = min([end.at for end in ends] + sent), max(sent)
    deliveries = sum(at <= over for at in recorded.values())
    rate = deliveries / (over - began)
    expired_after = max(end.at for end in ends) - began
    cpu = per_thousand({**run.cpu, "total": sum(run.cpu.values())}, sum(at >= run.ready for at in recorded.values()))
    steady_cpu = steady.cpu["total"] - steady.cpu["accepting"]
    return Drain(
        first_after=round(began - run.started, 2),
        ready_after=round(run.ready - run.started, 2),
        seconds=round(over - began, 2),
        deliveries=deliveries,
        deliveries_per_second=round(rate),
        of_steady=round(rate / steady.per_second, 3),
        of_steady_by_cpu=round(steady_cpu / cpu["total"], 3),
        others_after=round(max(recorded[each] for each in run.cohort.others if each in recorded) - began, 2),
        expired_after=round(expired_after, 2),
        expired_per_second=round(len(ends) / expired_after),
        cpu=cpu,
        others=run.others,
    )


def lags_of(run: Run) -> dict[str, list[tuple[float, float]]]:
    """Of every piece of fresh work: when it was to be done, and how many seconds later it was."""
    fresh, effects = run.fresh, run.effects
    reservations = fresh.flooded_reservations | fresh.other_reservations
    return {
        "flooded": _to_first_byte(effects, fresh.flooded),
        "others": _to_first_byte(effects, fresh.others),
        "expired": [
            (due, effects.expired[each].at - due) for each, due in reservations.items() if each in effects.expired
        ],
        "told_flooded": _to_first_byte(effects, _news(effects, fresh.flooded_reservations)),
        "told_others": _to_first_byte(effects, _news(effects, fresh.other_reservations)),
    }


def _to_first_byte(effects: Effects, events: Mapping[str, float]) -> list[tuple[float, float]]:
    return [(at, effects.received[event] - at) for event, at in events.items() if event in effects.received]


def _news(effects: Effects, reservations: Iterable[int]) -> dict[str, float]:
    """The events that say that these expired, and when they did."""
    ends = (effects.expired[each] for each in reservations if each in effects.expired)
    return {end.event: end.at for end in ends}


def lags(found: Mapping[str, Sequence[tuple[float, float]]]) -> Lags:
    """How they are spread."""
    return Lags(**{name: spread_of(lag for _, lag in points) for name, points in found.items()})


def over_time(run: Run, found: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, list[tuple[float, float]]]:
    """The same from the start of the processes, in milliseconds, as a plot wants them."""
    return {
        name: [(round(at - run.started, 2), round(lag * 1000, 1)) for at, lag in points]
        for name, points in found.items()
    }


def moments(run: Run) -> list[Moment]:
    """The samples, with what of the overdue was left by then."""
    expired, recorded = run.effects.expired, run.effects.recorded
    expiries = sorted(expired[each].at for each in run.cohort.reservations if each in expired)
    deliveries = sorted(recorded[each] for each in run.cohort.events if each in recorded)
    return [
        Moment(
            round(sample.at - run.started, 2),
            len(run.cohort.reservations) - bisect_right(expiries, sample.at),
            len(run.cohort.events) - bisect_right(deliveries, sample.at),
            sample,
        )
        for sample in run.samples
    ]


def connections(samples: Sequence[Sample], pids: Mapping[str, Sequence[int]]) -> dict[str, Use]:
    """To PostgreSQL, by program: each process has a pool of fixed size."""
    processes = {f"duehook {role.replace('-', ' ')}": len(each) for role, each in pids.items()}
    return {
        name: Use(max(sample.connections.get(name, 0) for sample in samples), size * processes[name])
        for name, size in POOLS.items()
    }


def sockets(samples: Sequence[Sample], roles: Sequence[str]) -> dict[str, Use]:
    """Of the process that has most: to PostgreSQL and Redis, and a delivery worker's to receivers."""
    sending = {"worker-delivery": IN_FLIGHT + IDLE_LIMIT}
    return {
        role: Use(
            max(sample.sockets[role] for sample in samples),
            POOLS[f"duehook {role.replace('-', ' ')}"] + BROKER + OWN + sending.get(role, 0),
        )
        for role in roles
    }
