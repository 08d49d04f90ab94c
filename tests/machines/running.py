"""How machines are run: the same few thousand steps in every run of the suite, other ones for as long as one likes."""

import os
import random
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test
from hypothesis.strategies._internal.featureflags import FeatureFlags

from tests.machines.ground import Ground, Rows, differences

SUITE_SEED = 6
SECONDS = "MACHINES_SECONDS"  # run each machine for so long, from another seed on
SEED = "MACHINES_SEED"  # begin with this one: a run that failed named its own
AUDIT_EVERY = 20  # steps: it costs as much as ten of them
PATIENCE = 900 + float(os.environ.get(SECONDS, 0))  # of pytest: Hypothesis may take minutes to shorten what failed
STEPS = 40  # of one example


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

    def expected(self) -> Rows:
        """What the model says is in `tables`."""
        raise NotImplementedError

    @invariant()
    def the_database_is_as_the_model_says(self) -> None:
        found = self.ground.read(self.tables)
        wrong = differences(self.expected(), found)
        assert not wrong, "\n".join(wrong)
        if self.step % AUDIT_EVERY == 0:
            self.ground.audit()
        self.step += 1

    def teardown(self) -> None:
        self.ground.steps += max(0, self.step - 1)


def run(ground: Ground, machine: Callable[[Ground], Machine], *, examples: int) -> None:
    """Run a machine; a failure names the seed that repeats it, and Hypothesis prints the steps, as few as it can.

    Hypothesis leaves half of the rules out of most examples (swarm testing), which finds what only happens where
    something else does not; but it takes many examples until all rules meet. So every second seed does without.
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


def _seeds() -> Iterator[int]:
    first = int(os.environ.get(SEED) or (random.randrange(1 << 31) if SECONDS in os.environ else SUITE_SEED))
    until = time.monotonic() + float(os.environ.get(SECONDS, 0))
    yield first
    while time.monotonic() < until:
        first += 1
        yield first


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


def assert_reached(ground: Ground, situations: Collection[str], *, steps: int) -> None:
    """Fails when the machines never came to one of these, or made fewer steps than they should."""
    missing = [each for each in situations if not ground.reached[each]]
    assert not missing, f"never reached in {ground.steps} steps: {missing}"
    assert ground.steps >= steps
