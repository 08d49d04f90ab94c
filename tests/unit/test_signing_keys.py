from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.signing_keys import (
    Ed25519Key,
    HmacKey,
    checking_key,
    ed25519_secret,
    hmac_secret,
    signing_key,
)

HEAD, BODY = b"evt_1.1700000000.", b"{}"
SEED = bytes(range(32))


def base64_of(size: int) -> str:
    return b64encode(bytes(range(size))).decode()


@given(st.binary(min_size=24, max_size=64))
def test_a_new_secret_is_one_that_both_sides_can_use(random: bytes) -> None:
    sender, receiver = signing_key(hmac_secret(random)), checking_key(hmac_secret(random))
    assert isinstance(sender, HmacKey)
    assert receiver.accepts(sender.sign(HEAD, BODY), HEAD, BODY)


@given(st.binary(min_size=32, max_size=32))
def test_a_private_key_tells_the_public_half_that_receivers_need(random: bytes) -> None:
    sender = signing_key(ed25519_secret(random))
    assert isinstance(sender, Ed25519Key)
    receiver = checking_key(sender.public.text)
    assert receiver.accepts(sender.sign(HEAD, BODY), HEAD, BODY)
    assert checking_key(sender.public.text).version == "v1a"


@pytest.mark.parametrize("size", [0, 23, 65])
def test_a_secret_is_made_of_24_to_64_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="24 to 64 bytes"):
        hmac_secret(bytes(size))


@pytest.mark.parametrize("size", [31, 33, 64])
def test_a_private_key_is_made_of_32_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        ed25519_secret(bytes(size))


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_tenants_own_secret_is_taken(size: int) -> None:
    assert isinstance(signing_key("whsec_" + base64_of(size)), HmacKey)


WRONG_SECRETS = [
    "",
    "whsec",
    "whsec_",
    "WHSEC_" + base64_of(32),
    base64_of(32),
    "v1,whsec_" + base64_of(32),
    " whsec_" + base64_of(32),
    "whsec_" + base64_of(32) + "\n",
    "whsec_" + base64_of(32) + "=",
    "whsec_" + base64_of(32).rstrip("="),
    "whsec_" + base64_of(32)[:-2] + "9=",  # the same bytes, spelled with stray bits
    "whsec_" + base64_of(32).replace("A", "-", 1),
    "whsec_" + base64_of(32)[:10] + " " + base64_of(32)[10:],
    "whsec_" + base64_of(23),
    "whsec_" + base64_of(65),
    "whsec_whsec_" + base64_of(32),
    "whsec_not base64 at all, not even nearly",
    "whsec_é" + base64_of(32),
    "whsec_\ud800" + base64_of(32),
    "whsk_" + base64_of(31),
    "whsk_" + base64_of(64),
    "whsk_",
    "whpk_" + base64_of(32),
]


@pytest.mark.parametrize("text", WRONG_SECRETS)
def test_a_wrong_secret_is_refused_with_one_sentence_that_does_not_repeat_it(text: str) -> None:
    with pytest.raises(ValueError) as refusal:
        signing_key(text)
    sentence = str(refusal.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(text) < 8 or text not in sentence
    assert base64_of(23)[:12] not in sentence
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__ or refusal.value.__context__ is None


@pytest.mark.parametrize(
    "text", ["", "whsec_", "whpk_" + base64_of(31), "whpk_!", "whsk_" + base64_of(32), base64_of(32)]
)
def test_a_receiver_needs_the_shared_secret_or_the_public_half(text: str) -> None:
    with pytest.raises(ValueError):
        checking_key(text)


@given(st.text())
def test_no_text_is_refused_in_another_way(text: str) -> None:
    for prefix in ("", "whsec_", "whsk_", "whpk_"):
        for key_of in (signing_key, checking_key):
            try:
                key_of(prefix + text)
            except ValueError:
                continue


@pytest.mark.parametrize("text", [hmac_secret(SEED), ed25519_secret(SEED)])
def test_a_key_does_not_show_its_secret(text: str) -> None:
    shown = repr(signing_key(text)) + repr(vars(signing_key(text)))
    assert text.partition("_")[2] not in shown
    assert repr(SEED) not in shown


def test_signing_leaves_the_prepared_state_as_it_was() -> None:
    key = HmacKey(SEED)
    assert [key.sign(HEAD, BODY) for _ in range(3)] == [HmacKey(SEED).sign(HEAD, BODY)] * 3
