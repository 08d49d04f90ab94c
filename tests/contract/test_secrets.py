"""Signing secrets over HTTP: what may be one, who is told, and what is kept."""

from base64 import b64encode

import httpx
import pytest

from app.domain.signing_keys import Ed25519Key, signing_key
from tests.clock import Clock
from tests.contract.served import Api, number_of, subscribe
from tests.contract.test_endpoints import live_secrets
from tests.ledgers import rows


def of(size: int) -> str:
    return b64encode(bytes(range(size))).decode()


REFUSED = [
    ("hmac", f"whsec_{of(23)}", "A whsec_ key is whsec_ and the base64 of 24 to 64 bytes."),
    ("hmac", f"whsec_{of(65)}", "A whsec_ key is whsec_ and the base64 of 24 to 64 bytes."),
    ("hmac", f"whsec_{of(32)[:-1]}", "A whsec_ key is whsec_ and the base64 of 24 to 64 bytes."),
    ("hmac", f"whsec_{of(32).replace('A', '_')}", "A whsec_ key is whsec_ and the base64 of 24 to 64 bytes."),
    ("hmac", of(32), "A signing secret starts with whsec_ (HMAC) or whsk_ (Ed25519)."),
    ("hmac", "", "A signing secret starts with whsec_ (HMAC) or whsk_ (Ed25519)."),
    ("hmac", f"v1,whsec_{of(32)}", "A signing secret starts with whsec_ (HMAC) or whsk_ (Ed25519)."),
    ("hmac", f"whsk_{of(32)}", "this is not a secret for hmac: hmac takes whsec_, ed25519 whsk_"),
    ("ed25519", f"whsec_{of(32)}", "this is not a secret for ed25519: hmac takes whsec_, ed25519 whsk_"),
    ("ed25519", f"whsk_{of(31)}", "A whsk_ key is whsk_ and the base64 of 32 bytes."),
    ("ed25519", f"whsk_{of(64)}", "A whsk_ key is whsk_ and the base64 of 32 bytes."),
    ("ed25519", f"whpk_{of(32)}", "A signing secret starts with whsec_ (HMAC) or whsk_ (Ed25519)."),
]


@pytest.mark.parametrize(("signing", "secret", "sentence"), REFUSED)
def test_a_wrong_secret_is_refused_with_a_sentence_that_says_what_to_send(
    acme: httpx.Client, signing: str, secret: str, sentence: str
) -> None:
    asked = {"url": "http://127.0.0.1:9/", "event_types": ["*"], "signing": signing, "secret": secret}
    answer = acme.post("/v1/endpoints", json=asked)
    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"pointer": "/secret", "detail": sentence}]
    assert not secret or secret not in answer.text
    assert acme.get("/v1/endpoints").json()["data"] == []


@pytest.mark.parametrize(
    ("signing", "secret"),
    [("hmac", f"whsec_{of(24)}"), ("hmac", f"whsec_{of(64)}"), ("ed25519", f"whsk_{of(32)}")],
)
def test_the_smallest_and_the_largest_secret_are_taken(api: Api, acme: httpx.Client, signing: str, secret: str) -> None:
    assert live_secrets(api, subscribe(acme, signing=signing, secret=secret)) == [secret]


def test_no_answer_ever_holds_a_private_key(api: Api, acme: httpx.Client) -> None:
    private = f"whsk_{of(32)}"
    created = acme.post(
        "/v1/endpoints",
        json={"url": "http://127.0.0.1:9/", "event_types": ["*"], "signing": "ed25519", "secret": private},
    )
    at = f"/v1/endpoints/{created.json()['id']}"
    key = signing_key(private)
    assert isinstance(key, Ed25519Key)
    assert created.json()["secret"] == key.public.text
    answers = [created, acme.get(at), acme.get(f"{at}/secret"), acme.post(f"{at}/rotate-secret")]
    assert all("whsk_" not in answer.text for answer in answers)


def test_a_secret_that_a_change_of_signing_made_is_read_by_its_own_route_as_the_documentation_says(
    acme: httpx.Client,
) -> None:
    endpoint = subscribe(acme)
    changed = acme.patch(f"/v1/endpoints/{endpoint}", json={"signing": "ed25519"})
    assert "secret" not in changed.json()
    assert acme.get(f"/v1/endpoints/{endpoint}/secret").json()["secret"].startswith("whpk_")
    described = acme.get("/openapi.json").json()["components"]["schemas"]["EndpointChange"]["properties"]["signing"]
    assert "/v1/endpoints/{id}/secret" in described["description"]


def test_a_rotation_counts_and_ends_secrets_of_both_kinds(api: Api, acme: httpx.Client) -> None:
    endpoint = subscribe(acme)
    rotate = f"/v1/endpoints/{endpoint}/rotate-secret"
    acme.post(rotate)
    acme.patch(f"/v1/endpoints/{endpoint}", json={"signing": "ed25519"})
    acme.post(rotate)
    acme.patch(f"/v1/endpoints/{endpoint}", json={"signing": "hmac"})
    kinds = [secret.partition("_")[0] for secret in live_secrets(api, endpoint)]
    assert kinds == ["whsec", "whsk", "whsk", "whsec", "whsec"]
    assert acme.post(rotate).status_code == 409
    assert acme.post(rotate, json={"overlap_seconds": 0}).status_code == 200
    assert [secret.partition("_")[0] for secret in live_secrets(api, endpoint)] == ["whsec"]


def test_an_overlap_never_makes_an_older_secret_live_longer(api: Api, acme: httpx.Client, clock: Clock) -> None:
    endpoint = subscribe(acme)
    rotate = f"/v1/endpoints/{endpoint}/rotate-secret"
    acme.post(rotate, json={"overlap_seconds": 60})
    second = acme.post(rotate, json={"overlap_seconds": 3600}).json()
    assert second["previous_expires_at"] == "2030-01-01T13:00:00.000000Z"
    clock.advance(seconds=60)
    assert len(live_secrets(api, endpoint)) == 2


def test_a_secret_that_has_ended_is_not_kept(api: Api, acme: httpx.Client, clock: Clock) -> None:
    endpoint = subscribe(acme)
    for _ in range(3):
        acme.post(f"/v1/endpoints/{endpoint}/rotate-secret", json={"overlap_seconds": 60})
        clock.advance(seconds=60)
    kept = "SELECT count(*) FROM duehook.secrets WHERE endpoint = :endpoint"
    assert rows(api.runtime.engine, kept, endpoint=number_of(endpoint)) == [2]


@pytest.mark.parametrize("overlap", [-1, 7 * 24 * 3600 + 1, "1", True, None])
def test_an_overlap_is_at_most_seven_days(acme: httpx.Client, overlap: object) -> None:
    answer = acme.post(f"/v1/endpoints/{subscribe(acme)}/rotate-secret", json={"overlap_seconds": overlap})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/overlap_seconds")


def test_neither_secret_nor_header_is_stored_as_it_is(api: Api, acme: httpx.Client) -> None:
    endpoint = number_of(subscribe(acme, secret=f"whsec_{of(32)}", headers={"x-token": "a value to hide"}))
    (headers,) = rows(api.runtime.engine, "SELECT headers FROM duehook.endpoints WHERE seq = :seq", seq=endpoint)
    (sealed,) = rows(api.runtime.engine, "SELECT sealed FROM duehook.secrets WHERE endpoint = :seq", seq=endpoint)
    for stored in (bytes(headers), bytes(sealed)):
        assert b"a value to hide" not in stored
        assert of(32).encode() not in stored
        assert bytes(range(32)) not in stored
