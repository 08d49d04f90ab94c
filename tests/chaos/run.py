"""One run: load and faults side by side, then peace until everything has settled, then the verdict."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.chaos.faults import Happened, inflict
from tests.chaos.fleet import Fleet, asked, running
from tests.chaos.judges import LATE, Verdict
from tests.chaos.load import Load
from tests.chaos.plan import Plan
from tests.chaos.verdict import NORMAL, judge

STUCK_SECONDS = 120.0  # without any progress
OPEN = "SELECT count(*) FROM duehook.outbox"
OLDEST = """
    SELECT coalesce(extract(epoch FROM duehook.now() - min(due_at)), 0)::float8 FROM duehook.outbox
     WHERE due_at <= (SELECT duehook.now()) AND kind <> 'endpoint'"""


class UnsettledError(Exception):
    """Things are open and nothing moves any more."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a run. `ages` are (wall clock, seconds) of the oldest due thing."""

    plan: Plan
    happened: list[Happened]
    ages: list[tuple[float, float]]
    verdict: Verdict
    seconds: float
    surprises: dict[str, int]
    machine: str


def run(plan: Plan, folder: Path, say: Callable[[str], object] = print) -> Ended:
    """The whole of it; raises UnsettledError when it never settles."""
    began = time.monotonic()
    with running(folder) as fleet:
        load, stopped = Load(plan, fleet), threading.Event()
        ages: list[tuple[float, float]] = []
        watch = threading.Thread(target=_watch, args=(fleet, ages, stopped), daemon=True)
        say(f"The fleet is ready after {time.monotonic() - began:.0f} s; {load.total} steps to do.")
        load.start()
        watch.start()
        try:
            happened = _inflict_all(plan, fleet, load, stopped, say)
            _settle(fleet, load, say)
        finally:
            load.stop()
            stopped.set()
            watch.join(130)
        verdict = judge(fleet, load, happened)
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[1]:.1f}"
    return Ended(plan, happened, ages, verdict, time.monotonic() - began, dict(load.surprises), machine)


def _inflict_all(
    plan: Plan, fleet: Fleet, load: Load, stopped: threading.Event, say: Callable[[str], object]
) -> list[Happened]:
    happened = []
    for fault in plan.fault_sequence():
        stopped.wait(fault.peace)
        happened.append(inflict(fleet, fault, stopped.wait))
        seen = ", ".join(f"{what} {times}" for what, times in happened[-1].seen.items() if times) or "hit nothing"
        say(f"{fault.number + 1:4} {fault.kind} {fault.target} {fault.seconds:g} s: {seen}; {load.left} steps left")
    return happened


def _settle(fleet: Fleet, load: Load, say: Callable[[str], object]) -> None:
    """Until every producer has been answered and nothing is open."""
    say("The faults are over.")
    before, since = (-1, -1), time.monotonic()
    while not load.done or before[1] != 0:
        ((open_now,),) = asked(fleet, OPEN)
        now = (load.left, int(str(open_now)))
        if now != before:
            before, since = now, time.monotonic()
        elif time.monotonic() - since > STUCK_SECONDS:
            raise UnsettledError(
                f"nothing has moved for {STUCK_SECONDS:g} s: {now[0]} steps, {now[1]} open things;"
                f" answers that contradict: {load.told.contradictions[:3]}"
            )
        time.sleep(0.2)


def _watch(fleet: Fleet, ages: list[tuple[float, float]], stopped: threading.Event) -> None:
    while not stopped.wait(0.25):
        ((age,),) = asked(fleet, OLDEST)
        ages.append((time.time(), float(str(age))))


def recovery(ended: Ended, each: Happened) -> float | None:
    """Seconds from the end of a fault until nothing was overdue any more; None when another began before."""
    after = min((h.began_at for h in ended.happened if h.began_at > each.began_at), default=float("inf"))
    for at, age in ended.ages:
        if at >= each.ended_at and age <= NORMAL:
            return at - each.ended_at if at < after else None
    return None


def report(ended: Ended) -> str:
    """As people read it."""
    verdict, lines = (
        ended.verdict,
        [f"\n{'fault':34}{'times':>6}{'hit':>5}{'recovery p50/max':>20}{'twice received':>16}{'bound':>8}"],
    )
    for kind in sorted({each.fault.kind for each in ended.happened}):
        these = [each for each in ended.happened if each.fault.kind == kind]
        took = [seconds for each in these if (seconds := recovery(ended, each)) is not None]
        told = f"{median(took):.1f} / {max(took):.1f} s" if took else "next came first"
        twice, bound = verdict.duplicates_by_kind[kind], verdict.bound_by_kind[kind]
        hit = sum(each.hit for each in these)
        lines.append(f"{kind:34}{len(these):6}{hit:5}{told:>20}{twice:16}{bound:8}")
    lines.append(f"{'no fault near':34}{'':31}{verdict.duplicates_by_kind['no fault']:16}")
    idle = [f"{each.fault.number + 1} {each.fault.kind} {each.fault.target}" for each in ended.happened if not each.hit]
    lines += [
        f"{len(ended.happened) - len(idle)} of {len(ended.happened)} faults were seen to hit something"
        + (f"; not {', '.join(idle)}" if idle else ""),
        f"{verdict.wanted} deliveries of {verdict.events} events, {len(ended.happened)} faults, {ended.seconds:.0f} s"
        f" ({ended.machine})",
        f"lost {verdict.lost}, duplicate effects {verdict.duplicate_effects}; {verdict.requests} requests, of them"
        f" {verdict.duplicates_received} duplicates ({verdict.repeatable} attempts unknown or abandoned),"
        f" {verdict.overtaken} overtaken by a later attempt",
        f"the last effect came {verdict.latest:.1f} s after its time and the faults' end ({LATE:g} s are allowed)",
        *(f"the API surprised a producer {times} times: {what}" for what, times in ended.surprises.items()),
        *(f"VIOLATION: {sentence}" for sentence in verdict.violations),
    ]
    return "\n".join(lines)
