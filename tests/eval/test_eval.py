"""The whole evaluation, on a service of its own."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from app.domain.suspicion import POISON_AFTER
from app.eval.faults import FAULTS
from app.eval.thresholds import FIGURES
from tests.service import DUEHOOK, environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_every_fault_comes_about_and_every_business_effect_happens_once(tmp_path: Path) -> None:
    """DUEHOOK_HOME and an unreachable database are the user's own, and not for this."""
    page = tmp_path / "page.html"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    given = environment(home=tmp_path / "home", database_url="postgresql://127.0.0.1:1/nowhere")
    ran = subprocess.run(
        [*DUEHOOK, "eval", "--json", "--html", page],
        env={**given, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    report = json.loads(ran.stdout)
    assert (ran.returncode, report["problems"]) == (0, []), ran.stderr
    assert report["not_run"] == []
    faults = {fault["name"]: fault for fault in report["faults"]}
    assert list(faults) == list(FAULTS)
    for name, fault in faults.items():
        assert fault["hits"] > 0 and fault["happened"] and not fault["missed"], name
        assert list(fault["figures"]) == [check["figure"] for check in fault["checks"]] == list(FIGURES)
        assert fault["began_fault"] < fault["ended_fault"] <= fault["seconds"] + 0.1
        assert len(fault["samples"]) > 1 and fault["acceptance"]["p99"] > 0, name
        for receiver in fault["destinations"].values():
            assert receiver["expected_effects"] > 0 and receiver["lost_effects"] == 0
            assert receiver["outcomes"]["delivered"] == receiver["ends"]["delivered"]
        bystander = fault["destinations"]["bystander"]
        assert bystander["effects"] == bystander["expected_effects"], name

    def at(fault: str, receiver: str) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = faults[fault]["destinations"][receiver]
        return found

    # The fault has left its trace, on both sides of the wire.
    stalled = at("timeout-after-acceptance", "careful")
    assert stalled["answers"]["stalled"] == stalled["answers"]["duplicate"] == stalled["outcomes"]["unknown"]
    assert faults["timeout-after-acceptance"]["figures"]["duplicates_per_event_naive"] > 0
    assert at("throttled", "naive")["outcomes"]["throttled"] == at("throttled", "naive")["answers"]["throttled"] > 0
    for name in ("worker-killed", "lease-lost", "poison-event"):
        assert faults[name]["figures"]["abandoned_by_leases"] > 0, name
    assert at("receipt-refused", "careful")["answers"]["failed"] > 0
    assert "failed" not in at("receipt-refused", "naive")["answers"]
    assert faults["confirm-against-expiry"]["reservations"] == 48
    poisoned = at("poison-event", "careful")
    assert poisoned["ends"]["dead: poison"] == 1
    assert poisoned["answers"]["killed"] == POISON_AFTER
    assert at("rotated-secret", "naive")["answers"]["unverified"] > 0
    assert "unverified" not in at("rotated-secret", "careful")["answers"]
    assert "relay was killed" in faults["relay-killed"]["happened"][0]

    text = page.read_text()
    assert text.count("<svg") == len(FAULTS) and "every\nfigure is within its threshold" in text
    said = ran.stderr.splitlines()
    assert all(any(f"s  {name}: " in line for line in said) for name in FAULTS)
    assert os.listdir(temporary) == []
    assert not (tmp_path / "home").exists()
