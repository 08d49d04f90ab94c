import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from app.domain.signature import Refusal, Refused, Verified, sign, verify
from app.domain.signing_keys import (
    CheckingKey,
    Ed25519Key,
    HmacKey,
    checking_key,
    ed25519_secret,
    hmac_secret,
    signing_key,
)

OLD, NEW, OTHER = (hmac_secret(bytes([n]) * 32) for n in (1, 2, 3))
PRIVATE = Ed25519Key(bytes(32))
ID = "evt_19f3c2a9b4d00a31"
NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
TOLERANCE = timedelta(minutes=5)
BODY = b'{"id":"evt_19f3c2a9b4d00a31","data":{"total":1.0}}'

ODD_BODIES = [
    '{"data":"😀"}'.encode(),
    '{"data":"\u2028\u2029"}'.encode(),
    b'{"data":1.0}',
    b'{"data":1}',
    b'{"data":1e400}',
    b'{"data":{"a":1,"a":2}}',
    b'{"data":{"b":1,"a":2}}',
    b'{"data":"\\ud800"}',
    b'{"data":"\\u0000"}',
    b'{ "data" : [ ] }\r\n',
    b'{"data":{}}',
]


def checked(
    signatures: str,
    *,
    keys: list[CheckingKey] | None = None,
    message_id: str = ID,
    timestamp: str = str(SECONDS),
    body: bytes = BODY,
    now: datetime = NOW,
) -> Verified | Refused:
    known = keys if keys is not None else [checking_key(NEW)]
    return verify(known, message_id, timestamp, signatures, body, now=now, tolerance=TOLERANCE)


def signed(*secrets: str, message_id: str = ID, timestamp: int = SECONDS, body: bytes = BODY) -> str:
    return sign([signing_key(secret) for secret in secrets], message_id, timestamp, body)


def published_verifier_takes(secret: str, signatures: str, body: bytes, seconds: int) -> bool:
    headers = {"webhook-id": ID, "webhook-timestamp": str(seconds), "webhook-signature": signatures}
    try:
        standardwebhooks.Webhook(secret).verify(body, headers, json_parse=False)
    except standardwebhooks.WebhookVerificationError:
        return False
    return True


def seconds_now() -> int:
    return int(datetime.now(UTC).timestamp())


def test_the_published_vector_of_hmac_is_reproduced() -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert sign([signing_key(secret)], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}') == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_the_published_vector_of_ed25519_is_reproduced() -> None:
    key = signing_key("whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=")
    assert sign([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}') == (
        "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
    )


@pytest.mark.parametrize("body", ODD_BODIES)
def test_a_published_verifier_takes_what_we_sign_byte_for_byte(body: bytes) -> None:
    now = seconds_now()
    assert published_verifier_takes(NEW, signed(NEW, timestamp=now, body=body), body, now)


@pytest.mark.parametrize("body", ODD_BODIES)
def test_json_that_was_parsed_and_written_again_is_another_body(body: bytes) -> None:
    again = json.dumps(json.loads(body), indent=1).encode()
    assert isinstance(checked(signed(NEW, body=body), body=body), Verified)
    assert checked(signed(NEW, body=body), body=again) == Refused(Refusal.NO_MATCH)


@pytest.mark.parametrize("secret", [OLD, NEW])
def test_while_secrets_overlap_either_one_verifies(secret: str) -> None:
    now = seconds_now()
    signatures = signed(NEW, OLD, timestamp=now)
    assert len(signatures.split(" ")) == 2
    assert published_verifier_takes(secret, signatures, BODY, now)
    assert isinstance(checked(signed(NEW, OLD), keys=[checking_key(secret)]), Verified)


def test_a_receiver_with_another_secret_refuses() -> None:
    now = seconds_now()
    assert not published_verifier_takes(OTHER, signed(NEW, OLD, timestamp=now), BODY, now)
    assert checked(signed(NEW, OLD), keys=[checking_key(OTHER)]) == Refused(Refusal.NO_MATCH)


def test_a_receiver_may_know_several_secrets() -> None:
    assert isinstance(checked(signed(OLD), keys=[checking_key(NEW), checking_key(OLD)]), Verified)


def test_both_kinds_of_signature_travel_in_one_header() -> None:
    now = seconds_now()
    signatures = sign([PRIVATE, signing_key(NEW)], ID, now, BODY)
    assert [item.partition(",")[0] for item in signatures.split(" ")] == ["v1a", "v1"]
    assert published_verifier_takes(NEW, signatures, BODY, now)
    for key in (PRIVATE.public, checking_key(NEW)):
        assert isinstance(checked(sign([PRIVATE, signing_key(NEW)], ID, SECONDS, BODY), keys=[key]), Verified)


def test_a_key_checks_only_signatures_of_its_own_version() -> None:
    mislabelled = signed(NEW).replace("v1,", "v1a,")
    assert checked(mislabelled, keys=[checking_key(NEW), PRIVATE.public]) == Refused(Refusal.NO_MATCH)


def test_a_verified_message_tells_its_id_and_when_it_was_sent() -> None:
    assert checked(signed(NEW)) == Verified(message_id=ID, sent_at=NOW)


@pytest.mark.parametrize("secret", [NEW, ed25519_secret(bytes(32))])
@given(at=st.integers(0, len(BODY) - 1), bit=st.integers(0, 7))
def test_one_changed_bit_of_the_body_is_noticed(secret: str, at: int, bit: int) -> None:
    tampered = BODY[:at] + bytes([BODY[at] ^ (1 << bit)]) + BODY[at + 1 :]
    keys = [checking_key(NEW), PRIVATE.public]
    assert isinstance(checked(signed(secret), keys=keys), Verified)
    assert checked(signed(secret), keys=keys, body=tampered) == Refused(Refusal.NO_MATCH)


def test_the_id_and_the_time_are_signed_too() -> None:
    assert checked(signed(NEW), message_id="evt_2") == Refused(Refusal.NO_MATCH)
    assert checked(signed(NEW), timestamp=str(SECONDS + 1)) == Refused(Refusal.NO_MATCH)


def test_what_is_only_nearly_a_signature_is_refused() -> None:
    whole = signed(NEW)
    for signatures in (
        "v1,\ud800",
        "v1a,\ud800",
        whole[:-1],
        whole[:-4],
        "v1,",
        "v1",
        "",
        whole + "=",
        whole + "A",
        whole.replace(",", ";"),
    ):
        assert checked(signatures, keys=[checking_key(NEW), PRIVATE.public]) == Refused(Refusal.NO_MATCH)


def test_unknown_versions_and_spare_blanks_are_passed_over() -> None:
    assert isinstance(checked(f"v2,abc  {signed(OTHER)} {signed(NEW)} v1,é v9"), Verified)


def test_a_header_of_endless_signatures_is_not_worked_through() -> None:
    assert checked(" ".join([*["v1,AAAA"] * 15, signed(NEW)])) == Verified(ID, NOW)
    assert checked(" ".join([*["v1,AAAA"] * 16, signed(NEW)])) == Refused(Refusal.NO_MATCH)


def test_without_keys_nothing_is_believed_and_nothing_is_sent() -> None:
    assert checked(signed(NEW), keys=[]) == Refused(Refusal.NO_MATCH)
    with pytest.raises(ValueError, match="unsigned"):
        sign([], ID, SECONDS, BODY)


def test_a_dotted_id_would_sign_like_another_message_so_nobody_touches_one() -> None:
    body_of_a, key = b"2.x", HmacKey(b64decode(NEW.removeprefix("whsec_")))
    signature = "v1," + key.sign(b"a.1.", body_of_a)
    assert signature == "v1," + key.sign(b"a.1.2.", b"x")
    now = datetime.fromtimestamp(1, UTC)
    assert isinstance(checked(signature, message_id="a", timestamp="1", body=body_of_a, now=now), Verified)
    assert checked(signature, message_id="a.1", timestamp="2", body=b"x", now=now) == Refused(Refusal.BAD_ID)
    with pytest.raises(ValueError, match="no dot"):
        sign([key], "a.1", 2, b"x")


@pytest.mark.parametrize("message_id", ["", ".", "a.b", "a b", "a\n", "é", "a\0", "a" * 257])
def test_an_odd_id_is_refused_on_both_sides(message_id: str) -> None:
    assert checked(signed(NEW), message_id=message_id) == Refused(Refusal.BAD_ID)
    with pytest.raises(ValueError):
        sign([signing_key(NEW)], message_id, SECONDS, BODY)


@pytest.mark.parametrize(
    "timestamp",
    ["", "-1", "-0", "+1", "01", "1.0", "1e9", " 1", "1\n", "1_0", "１", "١", "nan", "inf", "9" * 12, "9" * 5000],
)
def test_an_odd_timestamp_is_refused(timestamp: str) -> None:
    assert checked(signed(NEW), timestamp=timestamp) == Refused(Refusal.BAD_TIMESTAMP)


@pytest.mark.parametrize("timestamp", [-1, -(2**40), 10**12])
def test_a_time_that_no_receiver_takes_is_not_signed(timestamp: int) -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        sign([signing_key(NEW)], ID, timestamp, BODY)


def test_the_first_second_can_be_signed() -> None:
    epoch = datetime.fromtimestamp(0, UTC)
    assert checked(signed(NEW, timestamp=0), timestamp="0", now=epoch) == Verified(ID, epoch)


@pytest.mark.parametrize(
    ("late", "answer"),
    [
        (timedelta(0), Verified(ID, NOW)),
        (TOLERANCE, Verified(ID, NOW)),
        (-TOLERANCE, Verified(ID, NOW)),
        (TOLERANCE + timedelta(microseconds=1), Refused(Refusal.TOO_OLD)),
        (-TOLERANCE - timedelta(microseconds=1), Refused(Refusal.TOO_NEW)),
        (timedelta(days=400_000), Refused(Refusal.TOO_OLD)),
    ],
)
def test_a_message_is_believed_within_the_tolerance(late: timedelta, answer: Verified | Refused) -> None:
    assert checked(signed(NEW), now=NOW + late) == answer


def test_a_replay_after_the_tolerance_is_refused_although_the_signature_is_good() -> None:
    assert checked(signed(NEW), now=NOW + timedelta(hours=1)) == Refused(Refusal.TOO_OLD)


@given(st.text(), st.text("0123456789.-", max_size=13), st.text("v1a, =AQéb\ud800", max_size=60), st.binary())
def test_nothing_that_a_stranger_sends_raises(message_id: str, timestamp: str, signatures: str, body: bytes) -> None:
    keys = [checking_key(NEW), PRIVATE.public]
    for tolerance in (TOLERANCE, timedelta.max):
        answer = verify(keys, message_id, timestamp, signatures, body, now=NOW, tolerance=tolerance)
        assert isinstance(answer, Refused)
    assert isinstance(checked(signatures, keys=keys), Refused)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_signed(body: bytes) -> None:
    keys = [checking_key(NEW), PRIVATE.public]
    signatures = sign([signing_key(NEW), PRIVATE], ID, SECONDS, body)
    assert checked(signatures, keys=keys, body=body) == Verified(ID, NOW)
    assert all(b64encode(b64decode(item.partition(",")[2])) for item in signatures.split(" "))
