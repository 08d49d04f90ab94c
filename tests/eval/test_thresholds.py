"""Thresholds: built in, printed, and as a file says them."""

import tomllib
from pathlib import Path

import pytest

from app.eval.faults import FAULTS
from app.eval.report import Check
from app.eval.thresholds import FIGURES, ThresholdError, built_in, load, nearest

BASE = built_in(lease=3, deadline=1.5)


def loaded(tmp_path: Path, text: str) -> dict[str, dict[str, float]]:
    file = tmp_path / "limits.toml"
    file.write_text(text)
    thresholds = load(file, BASE, FAULTS)
    return {name: thresholds.of(name) for name in FAULTS}


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ThresholdError) as caught:
        loaded(tmp_path, text)
    return str(caught.value).replace(str(tmp_path / "limits.toml"), "FILE")


def test_every_fault_has_a_threshold_for_every_figure_and_none_lets_an_effect_be_lost() -> None:
    for name in FAULTS:
        limits = BASE.of(name)
        assert list(limits) == list(FIGURES)
        assert limits["lost_effects"] == limits["duplicate_effects_deduplicating"] == limits["contradictions"] == 0
        assert limits["unexpected_effects"] == limits["signatures_rejected_deduplicating"] == 0
    assert BASE.own.keys() <= FAULTS.keys()
    assert BASE.of("poison-event")["dead_deliveries"] == 1


def test_longer_leases_are_given_more_time() -> None:
    longer = built_in(lease=45, deadline=15)
    for name in FAULTS:
        for figure, limit in BASE.of(name).items():
            is_time = figure.endswith("_seconds")
            assert longer.of(name)[figure] > limit if is_time else longer.of(name)[figure] == limit


def test_what_is_printed_says_the_same_as_a_file(tmp_path: Path) -> None:
    assert tomllib.loads(BASE.to_toml())["lost_effects"] == 0
    assert loaded(tmp_path, BASE.to_toml()) == {name: BASE.of(name) for name in FAULTS}


def test_a_file_changes_what_it_names_and_a_fault_s_own_goes_first(tmp_path: Path) -> None:
    limits = loaded(tmp_path, "recovery_seconds = 5\n[faults.throttled]\nrecovery_seconds = 7.5\nlost_effects = 1\n")
    assert limits["throttled"] == {**BASE.of("throttled"), "recovery_seconds": 7.5, "lost_effects": 1}
    for name in FAULTS.keys() - {"throttled"}:
        assert limits[name] == {**BASE.of(name), "recovery_seconds": 5}, "meant for all, so for the poison too"


def test_a_name_that_is_unknown_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    assert refusal(tmp_path, "lost_efects = 0") == "'lost_efects' in FILE is not a figure; did you mean lost_effects?"
    assert refusal(tmp_path, "[faults.relay-kiled]\nlost_effects = 0") == (
        "'relay-kiled' in FILE is not a fault; did you mean relay-killed?"
    )
    assert refusal(tmp_path, "[faults.relay-killed]\nlost = 0").startswith("'lost' in FILE is not a figure; did you")
    assert refusal(tmp_path, "[fault.relay-killed]") == "'fault' in FILE is not a figure; did you mean faults?"


@pytest.mark.parametrize("value", ["'0'", "true", "-1", "nan", "inf", "[1]", "2026-01-01", "{a = 1}"])
def test_what_is_no_number_is_refused(tmp_path: Path, value: str) -> None:
    assert refusal(tmp_path, f"lost_effects = {value}") == "lost_effects in FILE should be a number, 0 or more"
    assert refusal(tmp_path, f"[faults.throttled]\nlost_effects = {value}").endswith("should be a number, 0 or more")


def test_what_is_no_file_or_no_toml_is_refused_in_a_sentence(tmp_path: Path) -> None:
    assert refusal(tmp_path, "lost_effects 0").startswith("FILE is not TOML: ")
    assert refusal(tmp_path, "faults = 1").startswith("faults in FILE should be tables")
    assert refusal(tmp_path, "faults.throttled = 1") == "faults.throttled in FILE should be a table of figures"
    with pytest.raises(ThresholdError, match="No such file"):
        load(tmp_path / "missing.toml", BASE, FAULTS)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(ThresholdError, match="not UTF-8"):
        load(tmp_path / "latin.toml", BASE, FAULTS)


def test_a_figure_at_its_limit_is_fine_above_it_is_not_and_nothing_measured_is_not() -> None:
    assert Check("recovery_seconds", 5, 5).is_fine
    assert not Check("recovery_seconds", 5.001, 5).is_fine
    assert not Check("recovery_seconds", None, 5).is_fine


def test_the_nearest_name_is_the_one_that_was_meant() -> None:
    assert nearest("throtled", FAULTS) == "throttled"
    assert nearest("", FAULTS) in FAULTS
