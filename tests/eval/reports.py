"""A report as a run might have made it, to be printed and drawn."""

from dataclasses import replace

from app.demo.report import Lag
from app.eval.report import Check, Destination, FaultReport, NotRun, Report, Sample
from app.eval.thresholds import FIGURES

FIGURED: dict[str, float | None] = {**dict.fromkeys(FIGURES, 0.0), "oldest_due_seconds": 1.25, "recovery_seconds": 2.5}
DESTINATION = Destination(
    deduplicates=True,
    expected_effects=40,
    effects=40,
    duplicate_effects=0,
    lost_effects=0,
    unexpected_effects=0,
    signatures_rejected=0,
    answers={"applied": 40, "duplicate": 13},
    outcomes={"delivered": 40, "unknown": 13},
    ends={"delivered": 40},
)
FAULT = FaultReport(
    name="timeout-after-acceptance",
    title="the effect happens, the answer never comes",
    happened=["13 events had their effect."],
    hits=26,
    missed=None,
    settled=True,
    seconds=6.0,
    began_fault=1.0,
    ended_fault=2.0,
    events=40,
    reservations=0,
    destinations={"careful": DESTINATION, "naive": replace(DESTINATION, deduplicates=False, duplicate_effects=13)},
    acceptance=Lag(0.1, 0.2, 0.3, 0.4),
    figures=FIGURED,
    checks=[Check(name, value, 10) for name, value in FIGURED.items()],
    samples=[Sample(at / 5, 0, max(0, 1.25 - abs(at - 10) / 4), 40) for at in range(30)],
)
REPORT = Report(
    installation="a service of its own",
    tenant="eval-0123456789ab",
    version="0.1.0",
    began_at="2026-01-01T00:00:00+00:00",
    seconds=6.0,
    lease_seconds=3,
    deadline_seconds=1.5,
    faults=[FAULT],
    not_run=[NotRun("poison-event", "an event that kills its sender", "it would hurt others")],
)


def failed() -> Report:
    """The same with a figure above its threshold."""
    checks = [Check("recovery_seconds", 2.5, 2), *FAULT.checks[:-1]]
    return replace(REPORT, faults=[replace(FAULT, checks=checks)])
