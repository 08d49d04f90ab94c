"""What is good enough: the most that each figure may be, for all faults and for single ones; TOML says it."""

import difflib
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# Every figure of a fault that can have a threshold, and what it means. The order is that of all reports.
FIGURES: Final[Mapping[str, str]] = {
    "lost_effects": "effects that never happened, at any receiver",
    "duplicate_effects_deduplicating": "effects too many at the receivers that deduplicate",
    "duplicates_per_event_naive": "effects too many at the naive receiver, for each of its events",
    "unexpected_effects": "effects that happened for no reason",
    "contradictions": "reservations that were confirmed and expired, or did not end exactly once",
    "dead_deliveries": "deliveries that ended dead or cancelled",
    "signatures_rejected_deduplicating": "requests whose signature a deduplicating receiver rejected",
    "signatures_rejected_naive": "requests whose signature the naive receiver rejected",
    "abandoned_by_leases": "claims that ended without a record, and were taken over at their lease's end",
    "oldest_due_seconds": "the greatest age of anything due, by either clock",
    "acceptance_p50_seconds": "from creation (or due time) to acceptance, half of the deliveries",
    "acceptance_p95_seconds": "the same, 95 of 100",
    "acceptance_p99_seconds": "the same, 99 of 100",
    "recovery_seconds": "from the fault's end until all that was due is accepted",
}
_FAULTS: Final = "faults"
# What a fault may cost beyond what is the rule. Everything in seconds is added to below.
_OWN: Final[Mapping[str, Mapping[str, float]]] = {
    "duplicate-task": {"duplicates_per_event_naive": 0.1},
    "timeout-after-acceptance": {"duplicates_per_event_naive": 1},
    "worker-killed": {"duplicates_per_event_naive": 2, "abandoned_by_leases": 400},
    "lease-lost": {"duplicates_per_event_naive": 2, "abandoned_by_leases": 200},
    "poison-event": {"duplicates_per_event_naive": 4, "abandoned_by_leases": 400, "dead_deliveries": 1},
    "rotated-secret": {"signatures_rejected_naive": 500},
}
# A busy machine may make a request run into its deadline at any time.
_RULE: Final[Mapping[str, float]] = {"duplicates_per_event_naive": 0.5, "abandoned_by_leases": 40}
_SLACK, _LEASES, _POISON_LEASES = 20.0, 2.0, 8.0  # seconds, and leases that a fault may take beside them


class ThresholdError(Exception):
    """The file can't be used; the message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """`common` holds for every fault, `own` for the one it names and goes before."""

    common: Mapping[str, float]
    own: Mapping[str, Mapping[str, float]]

    def of(self, fault: str) -> dict[str, float]:
        """Those of one fault, in the order of `FIGURES`."""
        mine = {**self.common, **self.own.get(fault, {})}
        return {name: mine[name] for name in FIGURES if name in mine}

    def to_toml(self) -> str:
        """As a file that says the same, with what each means."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield "# The most that each figure may be. A line up here is for each fault whose own section has none;"
        yield "# without it what is built in stays. A line left out of a section is replaced by the one up here."
        for name, limit in self.common.items():
            yield f"{name} = {limit:g}  # {FIGURES[name]}"
        for fault, limits in self.own.items():
            yield ""
            yield f"[{_FAULTS}.{fault}]"
            yield from (f"{name} = {limit:g}" for name, limit in limits.items())


def built_in(*, lease: float, deadline: float) -> Thresholds:
    """For a service whose leases and deadlines are so many seconds long: what heals at a lease's end takes that."""
    seconds = _SLACK + _LEASES * (lease + deadline)
    times = {name: seconds for name in FIGURES if name.endswith("_seconds")}
    patient = dict.fromkeys(times, seconds + _POISON_LEASES * (lease + deadline))
    common = {name: _RULE.get(name, 0) for name in FIGURES} | times
    # Each death of its sender costs a lease, and whoever was in the air beside it waits for that too.
    own = {fault: {**limits, **(patient if fault == "poison-event" else {})} for fault, limits in _OWN.items()}
    return Thresholds(common, own)


def load(path: Path, base: Thresholds, faults: Iterable[str]) -> Thresholds:
    """What the file says on top of `base`; raises ThresholdError for what it may not say."""
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ThresholdError(f"{path} can't be read ({why})") from None
    except tomllib.TOMLDecodeError as error:
        raise ThresholdError(f"{path} is not TOML: {error}") from None
    own = written.pop(_FAULTS, {})
    if not isinstance(own, dict):
        raise ThresholdError(f"{_FAULTS} in {path} should be tables, such as [{_FAULTS}.worker-killed]")
    known = list(faults)
    for fault, limits in own.items():
        _check_name(fault, known, "a fault", path)
        if not isinstance(limits, dict):
            raise ThresholdError(f"{_FAULTS}.{fault} in {path} should be a table of figures")
    common = _limits(written, path)
    # What is said for all is meant for all: it goes before what is built in for single ones.
    kept = {
        fault: {name: limit for name, limit in base.own.get(fault, {}).items() if name not in common} for fault in known
    }
    merged = {fault: {**limits, **_limits(own.get(fault, {}), path)} for fault, limits in kept.items()}
    return Thresholds({**base.common, **common}, {fault: limits for fault, limits in merged.items() if limits})


def _limits(written: Mapping[str, Any], path: Path) -> dict[str, float]:
    for name, limit in written.items():
        _check_name(name, [*FIGURES, _FAULTS], "a figure", path)
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not math.isfinite(limit) or limit < 0:
            raise ThresholdError(f"{name} in {path} should be a number, 0 or more")
    return dict(written)


def _check_name(name: str, known: list[str], what: str, path: Path) -> None:
    if name not in known:
        raise ThresholdError(f"{name!r} in {path} is not {what}; did you mean {nearest(name, known)}?")


def nearest(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant."""
    return difflib.get_close_matches(name, list(known), 1, cutoff=0)[0]
