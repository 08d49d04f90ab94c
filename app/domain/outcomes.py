"""What an attempt came to, and what happens to its delivery next: the table of the contract, as two functions.

The head of a final response decides alone; without one it decides whether request bytes went out.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias, assert_never

from app.domain.backoff import FULL, SHORT, Schedule, wait
from app.domain.exchange import Answered, Blocked, Exchange, Unknown, Unreached
from app.domain.retry_after import is_readable
from app.domain.states import DeadReason, Outcome


@dataclass(frozen=True, slots=True)
class Done:
    """The receiver has it."""


@dataclass(frozen=True, slots=True)
class Again:
    """Another attempt, this long after now."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class Bury:
    """No further attempt: a dead letter."""

    reason: DeadReason


Verdict: TypeAlias = Done | Again | Bury

# Outcomes that more attempts rarely change get the short schedule, and their own name as the reason of death.
_SHORT_LIVED: Final = {
    Outcome.REJECTED: DeadReason.REJECTED,
    Outcome.REDIRECTED: DeadReason.REDIRECTED,
    Outcome.REFUSED: DeadReason.REFUSED,
    Outcome.BLOCKED: DeadReason.BLOCKED,
}


def outcome_of(exchange: Exchange) -> Outcome:
    """How the attempt ended (contract, section 4)."""
    match exchange:
        case Answered(status=status, retry_after=hint):
            return _outcome_of_status(status, hint)
        case Unreached():
            return Outcome.UNREACHED
        case Unknown():
            return Outcome.UNKNOWN
        case Blocked():
            return Outcome.BLOCKED
        case _:
            assert_never(exchange)


def _outcome_of_status(status: int, hint: str | None) -> Outcome:
    match status:
        case 410:
            return Outcome.GONE
        case 401 | 403:
            return Outcome.REJECTED
        case 408 | 425:
            return Outcome.FAILED
        case 429:
            return Outcome.THROTTLED
        case 503 if is_readable(hint):
            return Outcome.THROTTLED
    return _outcome_of_class(status // 100)


def _outcome_of_class(hundreds: int) -> Outcome:
    match hundreds:
        case 1:  # no final answer: 101 left HTTP, anything else left us waiting
            return Outcome.UNKNOWN
        case 2:
            return Outcome.DELIVERED
        case 3:
            return Outcome.REDIRECTED
        case 4:
            return Outcome.REFUSED
    return Outcome.FAILED  # 5xx, and codes that HTTP does not have


def verdict(
    outcome: Outcome,
    *,
    step: int,
    literal_blocked: bool,
    schedule: Schedule | None,
    retry_after: timedelta | None,
    jitter: float,
    max_retry_after: timedelta,
) -> Verdict:
    """What follows from an outcome when `step` outcomes were recorded before it in this round.

    `schedule` is the endpoint's own, in seconds, and replaces both others. `literal_blocked`: the URL names the
    forbidden address itself. `jitter` is random in [0, 1). A hint longer than `max_retry_after` counts as that.

    Only the last outcome counts, for the schedule and for the reason: outcomes that alternate are looked up at
    the same step, so a delivery that failed five times dies of its first refusal, and dies `refused`.
    """
    if final := _final(outcome, literal_blocked=literal_blocked):
        return final
    steps = _schedule(outcome) if schedule is None else schedule
    if step >= len(steps):
        return Bury(_SHORT_LIVED.get(outcome, DeadReason.ATTEMPTS_EXHAUSTED))
    hint = min(retry_after or timedelta(0), max_retry_after)
    return Again(max(wait(steps[step], jitter), hint))


def _final(outcome: Outcome, *, literal_blocked: bool) -> Verdict | None:
    match outcome:
        case Outcome.DELIVERED:
            return Done()
        case Outcome.GONE:
            return Bury(DeadReason.GONE)
        case Outcome.BLOCKED if literal_blocked:
            return Bury(DeadReason.BLOCKED)
        case Outcome.ABANDONED:
            raise ValueError("an abandoned claim repeats its step; it has no verdict")
    return None


def _schedule(outcome: Outcome) -> Schedule:
    return SHORT if outcome in _SHORT_LIVED else FULL
