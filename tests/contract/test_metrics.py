"""`/metrics`: open, or closed by its token; routes are labels, paths are not."""

import httpx
import pytest

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
