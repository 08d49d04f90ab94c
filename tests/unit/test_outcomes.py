from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.backoff import FULL, SHORT, Schedule
from app.domain.exchange import Answered, Blocked, Exchange, Phase, Unknown, Unreached
from app.domain.outcomes import Again, Bury, Done, Verdict, outcome_of, verdict
from app.domain.states import DeadReason, Outcome

ADDRESS = "192.0.2.1"
SIX_HOURS = timedelta(hours=6)
SHORT_LIVED = [Outcome.REJECTED, Outcome.REDIRECTED, Outcome.REFUSED, Outcome.BLOCKED]
PATIENT = [Outcome.THROTTLED, Outcome.FAILED, Outcome.UNREACHED, Outcome.UNKNOWN]
steps = st.integers(0, 12)
jitters = st.floats(0, 1, exclude_max=True)
hints = st.none() | st.integers(0, 10**6).map(lambda seconds: timedelta(seconds=seconds))


def judged(
    outcome: Outcome,
    step: int = 0,
    *,
    literal_blocked: bool = False,
    schedule: Schedule | None = None,
    retry_after: timedelta | None = None,
    jitter: float = 0.0,
) -> Verdict:
    return verdict(
        outcome,
        step=step,
        literal_blocked=literal_blocked,
        schedule=schedule,
        retry_after=retry_after,
        jitter=jitter,
        max_retry_after=SIX_HOURS,
    )


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.DELIVERED),
        (204, Outcome.DELIVERED),
        (299, Outcome.DELIVERED),
        (300, Outcome.REDIRECTED),
        (304, Outcome.REDIRECTED),
        (308, Outcome.REDIRECTED),
        (399, Outcome.REDIRECTED),
        (400, Outcome.REFUSED),
        (401, Outcome.REJECTED),
        (402, Outcome.REFUSED),
        (403, Outcome.REJECTED),
        (404, Outcome.REFUSED),
        (408, Outcome.FAILED),
        (409, Outcome.REFUSED),
        (410, Outcome.GONE),
        (425, Outcome.FAILED),
        (429, Outcome.THROTTLED),
        (499, Outcome.REFUSED),
        (500, Outcome.FAILED),
        (502, Outcome.FAILED),
        (503, Outcome.FAILED),
        (599, Outcome.FAILED),
        (600, Outcome.FAILED),
        (999, Outcome.FAILED),
        (99, Outcome.FAILED),
        (0, Outcome.FAILED),
        (-1, Outcome.FAILED),
        (100, Outcome.UNKNOWN),
        (101, Outcome.UNKNOWN),
        (103, Outcome.UNKNOWN),
    ],
)
def test_the_status_of_a_final_head_decides(status: int, outcome: Outcome) -> None:
    assert outcome_of(Answered(status, ADDRESS)) is outcome


@pytest.mark.parametrize("hint", ["0", "120", "Sun, 06 Nov 1994 08:49:37 GMT"])
def test_a_503_that_says_when_to_come_back_is_throttled(hint: str) -> None:
    assert outcome_of(Answered(503, ADDRESS, retry_after=hint)) is Outcome.THROTTLED


@pytest.mark.parametrize("hint", [None, "", "soon", "5, 100", "-1"])
def test_a_503_without_a_readable_hint_failed(hint: str | None) -> None:
    assert outcome_of(Answered(503, ADDRESS, retry_after=hint)) is Outcome.FAILED


def test_a_hint_changes_no_other_outcome() -> None:
    for status in (200, 301, 404, 410, 500, 504):
        assert outcome_of(Answered(status, ADDRESS, retry_after="5")) is outcome_of(Answered(status, ADDRESS))


def test_a_429_is_throttled_with_or_without_a_hint() -> None:
    assert outcome_of(Answered(429, ADDRESS, retry_after="nonsense")) is Outcome.THROTTLED


@pytest.mark.parametrize(
    ("exchange", "outcome"),
    [
        (Unreached(Phase.RESOLVE, "no such name"), Outcome.UNREACHED),
        (Unknown(Phase.ANSWER, "reset", ADDRESS), Outcome.UNKNOWN),
        (Blocked("private", literal=True), Outcome.BLOCKED),
        (Blocked("private", literal=False), Outcome.BLOCKED),
    ],
)
def test_without_a_head_it_counts_what_the_receiver_can_have(exchange: Exchange, outcome: Outcome) -> None:
    assert outcome_of(exchange) is outcome


@given(st.integers())
def test_every_status_has_an_outcome(status: int) -> None:
    assert outcome_of(Answered(status, ADDRESS)) is not Outcome.ABANDONED


@given(steps, hints)
def test_delivered_is_done_and_gone_is_buried_whatever_the_step(step: int, hint: timedelta | None) -> None:
    assert judged(Outcome.DELIVERED, step, retry_after=hint) == Done()
    assert judged(Outcome.GONE, step, retry_after=hint) == Bury(DeadReason.GONE)


@pytest.mark.parametrize("outcome", PATIENT)
def test_trouble_that_passes_gets_the_full_schedule(outcome: Outcome) -> None:
    verdicts = [judged(outcome, step) for step in range(9)]
    assert verdicts == [*(Again(timedelta(seconds=s)) for s in FULL), Bury(DeadReason.ATTEMPTS_EXHAUSTED)]


@pytest.mark.parametrize("outcome", SHORT_LIVED)
def test_trouble_that_stays_gets_the_short_schedule_and_dies_of_itself(outcome: Outcome) -> None:
    verdicts = [judged(outcome, step) for step in range(5)]
    assert verdicts == [*(Again(timedelta(seconds=s)) for s in SHORT), Bury(DeadReason(outcome.value))]


def test_a_forbidden_literal_address_is_buried_at_once() -> None:
    assert judged(Outcome.BLOCKED, literal_blocked=True) == Bury(DeadReason.BLOCKED)
    assert judged(Outcome.BLOCKED, literal_blocked=True, schedule=[1]) == Bury(DeadReason.BLOCKED)


def test_only_a_blocked_outcome_asks_whether_the_address_is_literal() -> None:
    assert judged(Outcome.FAILED, literal_blocked=True) == Again(timedelta(seconds=5))


@pytest.mark.parametrize("outcome", [*PATIENT, *SHORT_LIVED])
def test_an_endpoints_own_schedule_replaces_both(outcome: Outcome) -> None:
    assert judged(outcome, 0, schedule=[7, 0.5]) == Again(timedelta(seconds=7))
    assert judged(outcome, 1, schedule=[7, 0.5]) == Again(timedelta(seconds=0.5))
    assert isinstance(judged(outcome, 2, schedule=[7, 0.5]), Bury)


def test_an_empty_schedule_is_one_attempt() -> None:
    assert judged(Outcome.FAILED, schedule=[]) == Bury(DeadReason.ATTEMPTS_EXHAUSTED)
    assert judged(Outcome.REFUSED, schedule=[]) == Bury(DeadReason.REFUSED)
    assert judged(Outcome.DELIVERED, schedule=[]) == Done()


def test_outcomes_that_alternate_are_looked_up_at_the_same_step() -> None:
    assert judged(Outcome.FAILED, 2) == Again(timedelta(minutes=5))
    assert judged(Outcome.REFUSED, 3) == Again(timedelta(hours=24))
    assert judged(Outcome.FAILED, 4) == Again(timedelta(hours=2))
    assert judged(Outcome.REFUSED, 5) == Bury(DeadReason.REFUSED)


def test_a_hint_later_than_the_step_wins() -> None:
    assert judged(Outcome.THROTTLED, retry_after=timedelta(minutes=3)) == Again(timedelta(minutes=3))


def test_a_hint_earlier_than_the_step_loses() -> None:
    assert judged(Outcome.THROTTLED, 4, retry_after=timedelta(minutes=3)) == Again(timedelta(hours=2))


@pytest.mark.parametrize("outcome", [*PATIENT, *SHORT_LIVED])
def test_a_hint_counts_on_every_answer_that_is_retried(outcome: Outcome) -> None:
    assert judged(outcome, retry_after=timedelta(hours=2)) == Again(timedelta(hours=2))


def test_a_hint_is_bounded_but_a_step_is_not() -> None:
    assert judged(Outcome.FAILED, retry_after=timedelta(days=366)) == Again(SIX_HOURS)
    assert judged(Outcome.FAILED, 7, retry_after=timedelta(days=366)) == Again(timedelta(hours=24))


def test_a_hint_adds_no_attempt() -> None:
    assert isinstance(judged(Outcome.THROTTLED, 8, retry_after=timedelta(minutes=1)), Bury)


@given(st.sampled_from([*PATIENT, *SHORT_LIVED]), steps, jitters, hints)
def test_jitter_never_makes_an_attempt_earlier(
    outcome: Outcome, step: int, jitter: float, hint: timedelta | None
) -> None:
    plain = judged(outcome, step, retry_after=hint)
    jittered = judged(outcome, step, retry_after=hint, jitter=jitter)
    if isinstance(plain, Again) and isinstance(jittered, Again):
        assert plain.after <= jittered.after <= plain.after * 1.2
    else:
        assert plain == jittered


def test_an_abandoned_claim_has_no_verdict() -> None:
    with pytest.raises(ValueError, match="repeats its step"):
        judged(Outcome.ABANDONED)
