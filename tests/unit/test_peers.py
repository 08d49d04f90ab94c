"""What makes the benchmark beside peers a fair one: the same requests, and ratios that are what they say."""

import json

from standardwebhooks import Webhook

from app.domain.signing_keys import hmac_secret
from bench.peers.contestants import contestants
from bench.peers.main import left_out, rotated
from bench.peers.peer import NODE_FILES, PythonPeer
from bench.peers.report import Spread, comparison
from bench.peers.turn import Figures
from bench.peers.webhook import Receivers, jobs

SECRETS = [hmac_secret(bytes([number]) * 32) for number in range(3)]
RECEIVERS = Receivers(
    [{"url": f"http://127.0.0.{number}/hooks", "secret": each} for number, each in enumerate(SECRETS, 1)]
)


def figures(*, sending: float, per_second: float = 100.0, accepting: float = 0.1) -> Figures:
    """Of a turn that nobody took."""
    return Figures(1_000, 1_000, 5_000.0, per_second, accepting, sending, {"workers": sending}, 0.0, 0, 0)


def test_a_ratio_is_the_median_of_those_of_each_round() -> None:
    ours = [figures(sending=0.5), figures(sending=1.0), figures(sending=0.5)]
    theirs = [figures(sending=1.0), figures(sending=2.5), figures(sending=1.5)]
    assert comparison(ours, theirs).sending == Spread(2.5, 2.0, 3.0), "not that of the medians, which is 3"


def test_a_ratio_says_how_many_times_better_the_product_is() -> None:
    ours = [figures(sending=0.5, per_second=1_000.0, accepting=0.2)]
    theirs = [figures(sending=1.0, per_second=250.0, accepting=0.1)]
    compared = comparison(ours, theirs)
    assert (compared.sending.median, compared.per_second.median, compared.accepting.median) == (2.0, 4.0, 0.5)


def test_everybody_is_at_every_place_of_the_order_in_turn() -> None:
    everybody = contestants()
    orders = [rotated(everybody, number) for number in range(len(everybody))]
    for place in range(len(everybody)):
        assert {order[place].name for order in orders} == {each.name for each in everybody}


def test_who_lacks_the_same_is_left_out_by_one_sentence() -> None:
    peers = [
        PythonPeer(name, name.title(), "none", [package], worker=[], count=1, share=1.0)
        for name, package in (("one", "no_such_package"), ("two", "no_such_package"), ("three", "json"))
    ]
    assert left_out(peers) == ["One, Two left out for lack of no_such_package, which `make bench` installs."]


def test_a_job_has_a_body_of_one_kilobyte_for_the_endpoints_in_turn() -> None:
    made = jobs("evt_1_", 1_200, len(RECEIVERS))
    assert {len(job["body"].encode()) for job in made} == {1024}
    assert [job["endpoint"] for job in made[:4]] == [0, 1, 2, 0]
    assert len({job["id"] for job in made}) == 1_200
    assert json.loads(made[7]["body"])["id"] == made[7]["id"] == "evt_1_7"


def test_a_peers_request_is_signed_as_standard_webhooks_say() -> None:
    for job in jobs("evt_1_", 3, len(RECEIVERS)):
        url, body, headers = RECEIVERS.request(job)
        assert url == f"http://127.0.0.{job['endpoint'] + 1}/hooks"
        assert headers["webhook-id"] == job["id"]
        Webhook(SECRETS[job["endpoint"]]).verify(body, headers)


def test_the_npm_packages_are_named_exactly_and_by_no_address() -> None:
    package, lock = (json.loads((NODE_FILES / name).read_text()) for name in ("package.json", "package-lock.json"))
    named = {**package["dependencies"], **package["optionalDependencies"]}
    assert all(version[0].isdigit() for version in named.values())
    assert "://" not in (NODE_FILES / "package-lock.json").read_text()
    assert all("integrity" in each and "resolved" not in each for name, each in lock["packages"].items() if name)
