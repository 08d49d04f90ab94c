"""A small run of `make chaos`: every kind of fault once or more, and nothing lost or doubled."""

import tempfile
from pathlib import Path

import pytest

from tests.chaos.judges import Verdict
from tests.chaos.plan import KINDS, Plan
from tests.chaos.run import report, run

PLAN = Plan(seed=20261201, deliveries=6_000, faults=40, minutes=2.75)  # the load lasts as long as the faults


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_forty_faults_of_every_kind_lose_nothing_and_double_no_effect() -> None:
    with tempfile.TemporaryDirectory(prefix="duehook-chaos-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL runs as another user when root runs this
        ended = run(PLAN, folder)
    assert {each.fault.kind for each in ended.happened} == set(KINDS)
    assert not ended.verdict.violations, report(ended)
    _assert_there_was_something_to_lose(ended.verdict)
    assert sum(each.hit for each in ended.happened) >= PLAN.faults * 0.75, report(ended)


def _assert_there_was_something_to_lose(verdict: Verdict) -> None:
    assert verdict.wanted >= PLAN.deliveries * 0.9
    assert verdict.duplicates_received > 0  # or no fault came between an effect and its record


def test_a_seed_tells_the_faults_and_the_load() -> None:
    again = Plan(**{name: getattr(PLAN, name) for name in PLAN.__slots__})
    assert list(PLAN.fault_sequence()) == list(again.fault_sequence())
    assert PLAN.steps() == again.steps()
    assert {each.kind for each in PLAN.fault_sequence()} == set(KINDS)
