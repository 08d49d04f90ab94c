"""What we send, before the verifiers that others have published, before our own, and before the specification.

Standard Webhooks 1.0.0 has two kinds of signature. HMAC (`v1`) is checked by all of them. Ed25519 (`v1a`) is checked by
`app.receiver` and here by hand; the published libraries (standardwebhooks 1.1.0 of PyPI, 1.1.1 and 1.0.0 of npm,
svix 2.9.1 of PyPI, 1.99.1 of npm) pass over it and know no `whpk_` key.
"""

import json
import shutil
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import standardwebhooks
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app.local.postgres import Postgres
from app.receiver.verification import UnverifiedError, verify
from tests.contract.requests_sent import BODIES, Sent, requests_sent, signatures

HERE = Path(__file__).parent / "verifiers"
INSTALLED = Path(__file__).parents[2] / ".cache" / "verifiers"
VERIFIED, REFUSED = "verified", "WebhookVerificationError"


@dataclass(frozen=True, slots=True)
class Case:
    """A request as it arrives somewhere, and the one secret that is known there."""

    name: str
    secret: str
    headers: dict[str, str]
    body: bytes


Verifier = Callable[[Sequence[Case]], list[str]]


@pytest.fixture(scope="module")
def sent(postgres: Postgres, template: str) -> Iterator[list[Sent]]:
    """For this module alone: after five minutes a verifier would refuse all of it."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE verifiers TEMPLATE {template}")
        with requests_sent(postgres.url_of("verifiers")) as found:
            yield found
        connection.execute("DROP DATABASE verifiers WITH (FORCE)")


def of_pypi(webhook: Any) -> Verifier:
    """A verifier from the `Webhook` of a Python package."""

    def verdict(case: Case) -> str:
        try:
            webhook(case.secret).verify(case.body, case.headers)
        except Exception as error:  # noqa: BLE001 - which one it is, is what is judged
            return type(error).__name__
        return VERIFIED

    return lambda cases: [verdict(case) for case in cases]


def of_npm(package: str) -> Verifier:
    """A verifier from the `Webhook` of an npm package."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    if not (INSTALLED / "node_modules" / package).exists():
        pytest.skip("npm's packages are not installed: `make verifiers` does")

    def verdicts(cases: Sequence[Case]) -> list[str]:
        asked = [
            {"secret": case.secret, "headers": case.headers, "body": b64encode(case.body).decode()} for case in cases
        ]
        script = (HERE / "verify.mjs").read_text()
        ran = subprocess.run(
            [node, "--input-type=module", "--eval", script, package],
            input=json.dumps(asked),
            cwd=INSTALLED,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return [str(each) for each in json.loads(ran.stdout)]

    return verdicts


def of_svix() -> Verifier:
    svix = pytest.importorskip("svix.webhooks", reason="svix is not installed: `make verifiers` does")
    return of_pypi(svix.Webhook)


def ours(cases: Sequence[Case]) -> list[str]:
    def verdict(case: Case) -> str:
        try:
            event = verify(case.headers, case.body, case.secret)
        except UnverifiedError:
            return REFUSED
        assert event.body == case.body
        return VERIFIED

    return [verdict(case) for case in cases]


PUBLISHED: dict[str, Callable[[], Verifier]] = {
    "standardwebhooks of PyPI": lambda: of_pypi(standardwebhooks.Webhook),
    "svix of PyPI": of_svix,
    "standardwebhooks of npm": lambda: of_npm("standardwebhooks"),
    "svix of npm": lambda: of_npm("svix"),
}


@pytest.fixture(params=PUBLISHED)
def published(request: pytest.FixtureRequest) -> Verifier:
    return PUBLISHED[request.param]()


@pytest.fixture(params=[*PUBLISHED, "app.receiver"])
def verifier(request: pytest.FixtureRequest) -> Verifier:
    return ours if request.param == "app.receiver" else PUBLISHED[request.param]()


def case(name: str, each: Sent, secret: str, body: bytes | None = None, **headers: str) -> Case:
    """What was sent, with some of it changed on the way."""
    changed = {**each.headers, **{f"webhook-{part}": value for part, value in headers.items()}}
    return Case(f"{name}: {each.body_name} to {each.target.name}", secret, changed, each.body if body is None else body)


def assert_all(verifier: Verifier, cases: Sequence[Case], expected: str) -> None:
    assert cases
    found = zip(cases, verifier(cases), strict=True)
    assert {each.name: verdict for each, verdict in found if verdict != expected} == {}


def with_hmac(sent: Sequence[Sent]) -> list[tuple[Sent, str]]:
    """Each request with each shared secret that must verify it."""
    return [(each, secret) for each in sent for secret in each.target.hmac]


def test_every_body_went_to_every_kind_of_endpoint_byte_for_byte(sent: list[Sent]) -> None:
    assert {(each.target.name, each.body_name) for each in sent} == {
        (target, body) for target in ("one secret", "five secrets", "ed25519", "both kinds") for body in BODIES
    }
    for each in sent:
        assert each.body.endswith(b',"data":' + BODIES[each.body_name].encode() + b"}")
        assert abs(time.time() - int(each.headers["webhook-timestamp"])) < 300


def test_each_attempt_says_by_which_keys_it_was_signed_and_they_are_the_same_for_every_event(
    sent: list[Sent],
) -> None:
    ids: dict[str, set[tuple[str, ...]]] = {}
    for each in sent:
        (attempt,) = each.delivery["attempts"]
        assert len(attempt["key_ids"]) == len(set(attempt["key_ids"])) == len(each.target.keys)
        assert len(each.headers["webhook-signature"].split(" ")) == len(each.target.keys)
        ids.setdefault(each.target.name, set()).add(tuple(attempt["key_ids"]))
    assert all(len(found) == 1 for found in ids.values())
    every = [key for found in ids.values() for keys in found for key in keys]
    assert len(every) == len(set(every))


def test_a_verifier_with_any_of_the_live_secrets_takes_every_request(verifier: Verifier, sent: list[Sent]) -> None:
    assert_all(verifier, [case("as sent", each, secret) for each, secret in with_hmac(sent)], VERIFIED)


def test_a_verifier_refuses_a_body_that_was_changed_or_written_anew(verifier: Verifier, sent: list[Sent]) -> None:
    cases = [
        case(name, each, secret, body)
        for each, secret in with_hmac(sent)
        for name, body in {
            "a blank more": each.body + b" ",
            "another digit": each.body.replace(b'"id":"evt_', b'"id":"evt_0', 1),
            "written anew": json.dumps(json.loads(each.body), indent=1, ensure_ascii=True).encode(),
            "nothing": b"",
        }.items()
    ]
    assert_all(verifier, cases, REFUSED)


def test_a_verifier_refuses_another_id_another_time_and_another_secret(verifier: Verifier, sent: list[Sent]) -> None:
    stranger = "whsec_" + b64encode(bytes(32)).decode()
    other = next(each for each in sent if each.target.name == "one secret")
    cases = []
    for each, secret in with_hmac(sent):
        at = int(each.headers["webhook-timestamp"])
        cases += [
            case("another id", each, secret, id=each.headers["webhook-id"] + "0"),
            case("a second later", each, secret, timestamp=str(at + 1)),
            case("another secret", each, stranger),
        ]
        if each.target is not other.target:
            cases.append(case("another's signature", each, secret, signature=other.headers["webhook-signature"]))
    assert_all(verifier, cases, REFUSED)


@pytest.mark.parametrize("seconds", [-24 * 3600, -310, 310])
def test_a_verifier_refuses_what_was_signed_rightly_but_not_now(
    verifier: Verifier, sent: list[Sent], seconds: int
) -> None:
    """Signed by the published library itself, with the endpoint's own secret."""
    at = int(time.time()) + seconds
    cases = []
    for each, secret in with_hmac(sent):
        signature = standardwebhooks.Webhook(secret).sign(
            each.headers["webhook-id"], datetime.fromtimestamp(at, UTC), each.body.decode()
        )
        cases.append(case("at another time", each, secret, timestamp=str(at), signature=signature))
    assert_all(verifier, cases, REFUSED)


def test_no_published_verifier_checks_ed25519(published: Verifier, sent: list[Sent]) -> None:
    """When this fails, one does: then the sentences in README.md and decision 13 can say so."""
    cases = [case("as sent", each, key) for each in sent for key in each.target.ed25519]
    assert VERIFIED not in set(published(cases))


def test_ours_takes_ed25519_and_refuses_what_was_changed(sent: list[Sent]) -> None:
    signed = [(each, key) for each in sent for key in each.target.ed25519]
    assert_all(ours, [case("as sent", each, key) for each, key in signed], VERIFIED)
    late = str(int(time.time()) - 310)
    changed = [
        one
        for each, key in signed
        for one in (
            case("a blank more", each, key, each.body + b" "),
            case("written anew", each, key, json.dumps(json.loads(each.body), indent=1).encode()),
            case("another id", each, key, id=each.headers["webhook-id"] + "0"),
            case("a second later", each, key, timestamp=str(int(each.headers["webhook-timestamp"]) + 1)),
            case("long ago", each, key, timestamp=late),
        )
    ]
    assert_all(ours, changed, REFUSED)


def test_ed25519_is_signed_as_the_specification_says(sent: list[Sent]) -> None:
    """`v1a,` and the base64 of the 64 bytes that the private key makes of id.timestamp.body; `whpk_` the public key."""
    for each in sent:
        made = signatures(each.headers, "v1a")
        assert len(made) == len(each.target.ed25519)
        whole = f"{each.headers['webhook-id']}.{each.headers['webhook-timestamp']}.".encode() + each.body
        for text, signature in zip(each.target.ed25519, made, strict=True):
            assert len(signature) == 64
            public = Ed25519PublicKey.from_public_bytes(b64decode(text.removeprefix("whpk_"), validate=True))
            public.verify(signature, whole)
            with pytest.raises(InvalidSignature):
                public.verify(signature, whole + b" ")


def test_the_npm_packages_are_named_exactly_and_by_no_address() -> None:
    package, lock = (json.loads((HERE / name).read_text()) for name in ("package.json", "package-lock.json"))
    assert all(version[0].isdigit() for version in package["dependencies"].values())
    assert "://" not in (HERE / "package-lock.json").read_text()
    assert all("integrity" in each for name, each in lock["packages"].items() if name)
