"""`/metrics`: open, or closed by its token; routes are labels, paths are not."""

import httpx
import pytest

from app import metrics
from tests.contract.served import Api, served


@pytest.fixture
def stranger(api: Api) -> httpx.Client:
    return httpx.Client(base_url=api.url)


def test_it_is_open_without_a_token(stranger: httpx.Client) -> None:
    answer = stranger.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "\nduehook_reservation_oldest_due_age_seconds " in answer.text


def test_its_token_closes_it(contract_url: str) -> None:
    with served(contract_url, metrics_token="sesame") as closed, httpx.Client(base_url=closed.url) as stranger:
        refused = stranger.get("/metrics")
        assert (refused.status_code, refused.json()["type"]) == (401, "/problems/no-key")
        assert stranger.get("/metrics", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert stranger.get("/metrics", headers={"authorization": "Bearer sesame"}).status_code == 200


def test_routes_are_labels_and_neither_paths_nor_made_up_methods_are(
    acme: httpx.Client, stranger: httpx.Client
) -> None:
    acme.get("/v1/events/evt_1")
    acme.head("/healthz")
    stranger.get("/of/my/own/xyzzy")
    stranger.request("PLUGH", "/v1/events")
    labels = {
        sample.labels["route"] for sample in next(iter(metrics.REQUESTS.collect())).samples if "route" in sample.labels
    }
    assert "GET /v1/events/{id}" in labels
    assert not any(made_up in each.lower() for each in labels for made_up in ("evt_1", "xyzzy", "plugh"))
