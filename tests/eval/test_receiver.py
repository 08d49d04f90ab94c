"""The receivers of the evaluation, over real sockets: what they are told to get wrong, and whom they hurt."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from app.demo.receivers import ReceiverProcess, receivers
from app.domain import signature
from app.domain.signing_keys import hmac_secret, signing_key
from app.eval.main import PROGRAM
from tests.waiting import wait_until

SECRET = hmac_secret(b"a secret of these receivers' tests")
# A program of its own: the receiver kills whoever sends the poison, and that must not be who runs the tests.
SEND = """
import json, sys, urllib.error, urllib.request
url, headers, body = json.loads(sys.stdin.read())
request = urllib.request.Request(url, body.encode(), headers, method="POST")
try:
    print(urllib.request.urlopen(request, timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Mapping[str, ReceiverProcess]]:
    """One that deduplicates and one that does not, who trust one secret on one path."""
    with receivers(("careful", "naive"), tmp_path, PROGRAM) as both:
        for receiver in both.values():
            receiver.tell(secrets={"/duehook/x": [SECRET]})
        both["naive"].tell(naive=True)
        yield both


def send(receiver: ReceiverProcess, event: str, kind: str = "eval.x", *, secret: str = SECRET, path: str = "x") -> str:
    """What a sender of its own printed: the status; nothing when it did not live to tell."""
    body = json.dumps({"id": event, "type": kind, "key": event, "timestamp": "2026-01-01T00:00:00.000Z", "data": {}})
    now = int(time.time())
    headers = {
        "content-type": "application/json",
        "webhook-id": event,
        "webhook-timestamp": str(now),
        "webhook-signature": signature.sign([signing_key(secret)], event, now, body.encode()),
    }
    told = json.dumps([f"{receiver.url}/{path}", headers, body])
    return subprocess.run(
        [sys.executable, "-c", SEND], input=told, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def test_a_duplicate_has_one_effect_where_it_is_noticed_and_two_where_it_is_not(
    running: Mapping[str, ReceiverProcess],
) -> None:
    for receiver in running.values():
        assert [send(receiver, "evt_1"), send(receiver, "evt_1")] == ["200", "200"]
    assert running["careful"].ledger.effects() == {"evt_1": 1}
    assert running["naive"].ledger.effects() == {"evt_1": 2}


def test_a_signature_counts_on_the_path_whose_secret_it_is(running: Mapping[str, ReceiverProcess]) -> None:
    other = hmac_secret(b"another secret of these receivers")
    for receiver in running.values():
        assert send(receiver, "evt_1", secret=other) == send(receiver, "evt_1", path="y") == "401"
        receiver.tell(secrets={"/duehook/y": [other, SECRET]})
        assert send(receiver, "evt_1", secret=other, path="y") == send(receiver, "evt_2", path="y") == "200"
        assert receiver.ledger.requests().count(("evt_1", "unverified")) == 2


def test_a_database_that_refuses_receipts_leaves_neither_effect_nor_receipt(
    running: Mapping[str, ReceiverProcess],
) -> None:
    careful = running["careful"]
    careful.tell(refuse_receipts=3600)
    assert {send(careful, f"evt_{n}") for n in range(6)} == {"500"}  # before the effect and after it, by chance
    assert careful.ledger.effects() == {}
    careful.tell(refuse_receipts=0)
    assert {send(careful, f"evt_{n}") for n in range(6)} == {"200"}
    assert set(careful.ledger.effects().values()) == {1}


def test_the_poison_kills_who_sends_it_and_nobody_whose_signature_is_not_right(
    running: Mapping[str, ReceiverProcess],
) -> None:
    other = hmac_secret(b"another secret of these receivers")
    for receiver in running.values():
        receiver.tell(poison="eval.x.poison")
        assert send(receiver, "evt_1") == "200"
        assert send(receiver, "evt_2", "eval.x.poison", secret=other) == "401"
        assert send(receiver, "evt_2", "eval.x.poison", path="y") == "401"
        assert send(receiver, "evt_2", "eval.x.poison") == ""
        assert receiver.ledger.effects() == {"evt_1": 1}
        wait_until(partial(_has_killed_once, receiver), what="it has noted what it did")


def _has_killed_once(receiver: ReceiverProcess) -> bool:
    return receiver.ledger.counts().answers == {"applied": 1, "unverified": 2, "killed": 1}
