"""The alerts, by Prometheus' own tool on series as they would be recorded: each is told, and none in a healthy hour."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text())
PROMTOOL = shutil.which("promtool")

HEALTHY = {
    "duehook_ledger_up": "1x80",
    "duehook_broker_up": "1x80",
    "duehook_reservation_oldest_due_age_seconds": "0 2 0 5 1 0x75",
    "duehook_delivery_oldest_due_age_seconds": "0 40 70 20 0x76",
    "duehook_outbox_oldest_due_age_seconds": "0 1 3 0x77",
    'duehook_processes{role="worker delivery"}': "2x80",
    "duehook_processes_silent": "0x80",
    "duehook_processes_unready": "0x80",
    "duehook_clock_offset_seconds": "0.02x80",
    'duehook_dead_total{reason="refused"}': "0+3x80",
    'duehook_dead_total{reason="poison"}': "0x80",
    'duehook_attempts_total{outcome="delivered"}': "0+1000x80",
    "duehook_leases_lost_total": "0 0 5x78",
    "duehook_publish_failures_total": "0 2x79",
    "duehook_broker_evicted_keys": "0x80",
    'duehook_repairs_total{kind="row_of_nothing"}': "0x80",
    "duehook_database_connections": "40x80",
    "duehook_database_connections_most": "97x80",
    "duehook_sends_in_flight": "200x80",
    "duehook_sends_most": "200x80",
}
FAULTS: dict[str, dict[str, str | None]] = {
    "DuehookReservationsLate": {"duehook_reservation_oldest_due_age_seconds": "0+15x80"},
    "DuehookDeliveriesLate": {"duehook_delivery_oldest_due_age_seconds": "0+15x80", "duehook_sends_in_flight": "9x80"},
    "DuehookLedgerDown": {**dict.fromkeys(HEALTHY), "duehook_ledger_up": "0x80"},
    "DuehookNotScraped": dict.fromkeys(HEALTHY),
    "DuehookRelayStalled": {"duehook_outbox_oldest_due_age_seconds": "0+15x80"},
    "DuehookPublishingFails": {"duehook_publish_failures_total": "0+3x80"},
    "DuehookBrokerUnreachable": {"duehook_broker_up": "0x80"},
    "DuehookBrokerEvicting": {"duehook_broker_evicted_keys": "0+1x80"},
    "DuehookNobodyWorks": {'duehook_processes{role="worker delivery"}': None},
    "DuehookProcessesSilent": {"duehook_processes_silent": "1x80"},
    "DuehookProcessesUnready": {"duehook_processes_unready": "1x80"},
    "DuehookClockOff": {"duehook_clock_offset_seconds": "3x80"},
    "DuehookLeasesLost": {"duehook_leases_lost_total": "0+5x80"},
    "DuehookDeathsMany": {'duehook_dead_total{reason="refused"}': "0+200x80"},
    "DuehookPoison": {'duehook_dead_total{reason="poison"}': "0 0 0 1x77"},
    "DuehookRepairs": {'duehook_repairs_total{kind="row_of_nothing"}': "0 0 0 2x77"},
    "DuehookDatabaseNearlyFull": {"duehook_database_connections": "90x80"},
    "DuehookWorkersSaturated": {"duehook_delivery_oldest_due_age_seconds": "9x80"},
}


def told(folder: Path, fault: Iterable[tuple[str, str | None]]) -> set[str]:
    """The alerts that are told after twenty minutes of healthy series with these in their place."""
    series = HEALTHY | dict(fault)
    silent = [{"eval_time": "20m", "alertname": name} for name in ALERTS]
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items() if values],
        "alert_rule_test": silent,
    }
    file = folder / "test.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]}))
    done = subprocess.run([str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "FAILED" in done.stdout + done.stderr, done.stderr
    return set(re.findall(r"alertname:\s*(\w+)", done.stdout + done.stderr))


def test_every_alert_has_a_fault_that_it_tells() -> None:
    assert sorted(FAULTS) == sorted(ALERTS)


def test_every_alert_says_what_it_means_and_what_to_run() -> None:
    blocks = RULES.read_text().split("- alert: ")[1:]
    assert all("summary:" in block and re.search(r"run: duehook \w+", block) for block in blocks)
    assert all(re.search(r"severity: (page|warn)\}", block) for block in blocks)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing: apt-get install prometheus")
def test_a_healthy_hour_tells_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, []) == set()


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing: apt-get install prometheus")
@pytest.mark.parametrize("alert", ALERTS)
def test_a_fault_is_told_by_its_alert_and_by_no_other(tmp_path: Path, alert: str) -> None:
    assert told(tmp_path, FAULTS[alert].items()) == {alert}
