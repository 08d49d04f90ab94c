"""Metrics: what a process counts, summed with others' and written as Prometheus reads it."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app import metrics
from app.api import metrics as of_api

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def values(exposition: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(exposition.decode())
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def test_sums_are_over_all_that_is_given_label_by_label() -> None:
    one = {'duehook_attempts_total{"outcome": "delivered"}': 2.0, 'duehook_attempts_total{"outcome": "failed"}': 1.0}
    other = {'duehook_attempts_total{"outcome": "delivered"}': 3.0, "duehook_leases_lost_total{}": 1.0}
    found = values(metrics.exposition([one, other]))
    assert found["duehook_attempts_total", frozenset({("outcome", "delivered")})] == 5
    assert found["duehook_attempts_total", frozenset({("outcome", "failed")})] == 1
    assert found["duehook_leases_lost_total", frozenset()] == 1


def test_what_another_version_counts_and_this_one_does_not_know_is_left_out() -> None:
    assert b"unheard_of" not in metrics.exposition([{"duehook_unheard_of_total{}": 1.0}])


def test_buckets_are_in_their_order_whatever_order_a_database_gave_them() -> None:
    sums, _ = metrics.counted()
    written = metrics.exposition([dict(sorted(sums.items(), reverse=True))]).decode()
    edges = [float(each) for each in re.findall(r'duehook_expiry_lag_seconds_bucket\{le="([^"]+)"', written)]
    assert edges == sorted(edges) and len(edges) > 10


def test_a_token_is_asked_for_only_if_there_is_one() -> None:
    assert metrics.allowed(None, None) and metrics.allowed("Bearer x", None)
    assert metrics.allowed("Bearer t", "t")
    assert not any(
        metrics.allowed(given, "t") for given in (None, "", "t", "Bearer", "Bearer tt", "Basic t", "Bearer é")
    )


def names() -> list[str]:
    source = Path(of_api.__file__).read_text()
    ledger = re.findall(r'_gauge\(\s*"(\w+)"|GaugeMetricFamily\(\s*f"\{PREFIX\}(\w+)"', source)
    sums = re.findall(r'CounterMetricFamily\(\s*f"\{PREFIX\}(\w+)"', source)
    families = [family.name + ("_total" if family.type == "counter" else "") for family in metrics.OURS.collect()]
    return sorted(
        {*families, *(f"duehook_{one or other}" for one, other in ledger), *(f"duehook_{each}_total" for each in sums)}
    )


@pytest.mark.parametrize("name", names())
def test_each_metric_is_on_the_page(name: str) -> None:
    assert f"| `{name}` |" in PAGE.read_text()


def test_the_page_knows_no_metric_that_there_is_not() -> None:
    assert sorted(re.findall(r"^\| `(duehook_\w+)` \|", PAGE.read_text(), re.M)) == names()
