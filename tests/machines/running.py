"""How machines are run: the same few thousand steps in every run of the suite, other ones for as long as one likes."""

import os
import random
import time
from collections.abc import Callable, Collection, Iterator
from itertools import count, takewhile
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test
from hypothesis.strategies._internal.featureflags import FeatureFlags

from tests.machines.ground import Ground, Rows, differences

SUITE_SEED, SUITE_RUNS = 6, 8
SECONDS = "MACHINES_SECONDS"  # run each machine for so long, from another seed on
SEED = "MACHINES_SEED"  # begin with this one: a run that failed named its own
AUDIT_EVERY = 20  # steps: it costs as much as ten of them
PATIENCE = 900 + float(os.environ.get(SECONDS, 0))  # of pytest: Hypothesis may take minutes to shorten what failed
STEPS = 60  # of one example


class Machine(RuleBasedStateMachine):
    """A machine on a ground: after each step its model's rows are the database's, every few the invariants hold."""

    tables: ClassVar[Collection[str]]

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.ground = ground
        self.step = 0
        if not ground.swarms:  # Hypothesis offers no setting for it; without this line the situations aren't reached
            self._rules_strategy.enabled_rules_strategy = st.just(FeatureFlags())
        ground.empty()

    def expected(self, found: Rows) -> Rows:
        """What the model says is in `tables`; `found` tells it the numbers of what is new."""
        raise NotImplementedError

    @invariant()
    def the_database_is_as_the_model_says(self) -> None:
        found = self.ground.read(self.tables)
        wrong = differences(self.expected(found), found)
        assert not wrong, "\n".join(wrong)
        if self.step % AUDIT_EVERY == 0:
            self.ground.audit()
        self.step += 1

    def teardown(self) -> None:
        self.ground.steps += max(0, self.step - 1)


def run(
    ground: Ground, machine: Callable[[Ground], Machine], *, examples: int, steps: int, situations: Collection[str]
) -> None:
    """Run a machine for so many steps and on until it has come to all `situations`, a few times that at most.

    A failure names the seed that repeats it, and Hypothesis prints the steps, as few as it can. The seeds are always
    the same in the suite, and so are the steps. Hypothesis leaves half of the rules out of most examples (swarm
    testing), which finds what only happens where something else does not; but then it takes many examples until all
    rules meet. So it is done with every second seed of a long run, and not in the suite.
    """
    for number in _seeds():
        print(f"seed {number}")
        ground.swarms = number % 2 == 1
        factory: Any = seed(number)(lambda: machine(ground))
        try:
            run_state_machine_as_test(factory, settings=_settings(examples))
        except BaseException as error:
            error.add_note(f"Repeat it with: make machines SEED={number}")
            raise
        if SECONDS not in os.environ and ground.steps >= steps and not _missing(ground, situations):
            break
    if SECONDS in os.environ and ground.steps < steps:
        pytest.skip(f"nothing broke in {ground.steps} steps, too few to come to everything: more SECONDS")
    if SEED not in os.environ:
        missing = _missing(ground, situations)
        assert not missing, f"never reached in {ground.steps} steps: {', '.join(missing)}"
        assert ground.steps >= steps


def _missing(ground: Ground, situations: Collection[str]) -> list[str]:
    """A suite in which one of these never happens proves nothing about it."""
    return [each for each in situations if not ground.reached[each]]


def _seeds() -> Iterator[int]:
    """One that is asked for; or new ones until the time is up; or those of the suite, which are even."""
    if SEED in os.environ:
        yield int(os.environ[SEED])
    elif SECONDS in os.environ:
        until, first = time.monotonic() + float(os.environ[SECONDS]), random.randrange(1 << 31)
        yield from takewhile(lambda _: time.monotonic() < until, count(first))
    else:
        yield from range(SUITE_SEED, SUITE_SEED + 2 * SUITE_RUNS, 2)


def _settings(examples: int) -> settings:
    """No deadline, for a step may wait on a busy machine; no database of examples, for a seed repeats everything."""
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
