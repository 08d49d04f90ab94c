"""Deliveries with their outbox and relay: every single step by whoever has a token, in any order, at any time."""

import pytest

from tests.machines import relaying
from tests.machines.deliveries import Deliveries
from tests.machines.ground import Ground
from tests.machines.running import PATIENCE, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE)]

SITUATIONS = [
    "the same event again",
    "another event with the same key",
    "an event waits for its time",
    "a waiting event is fanned out",
    "a cancelled event is not fanned out",
    "an event is cancelled while a delivery is in the air",
    *(f"answered {each}" for each in ("taken", "gone", "held", "early", "no_room", "suspect", "cancelled", "buried")),
    "a lapsed lease is claimed anew",
    "an older claim is refused while a newer one runs",
    "a stale record is refused",
    "a token is used twice",
    "a lapsed lease is recorded",
    "a lapsed lease is renewed",
    "cancel_requested met by a claim",
    "cancel_requested met by a record",
    "cancel_requested met by a give-back",
    "delivered although a cancel was asked for",
    "age exhausted",
    "too old for another attempt",
    "poison",
    *(f"died: {each}" for each in ("gone", "attempts_exhausted", "age_exhausted")),
    "died of what only a person can change",
    *(f"reopened: {each}" for each in ("scheduled", "delivered", "dead", "cancelled")),
    "not reopened: leased",
    "abandoned by its parent",
]


def test_deliveries_are_as_the_model_says_after_every_step(ground: Ground) -> None:
    run(ground, Deliveries, examples=20, steps=1500, situations=[*SITUATIONS, *relaying.SITUATIONS])
