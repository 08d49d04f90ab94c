"""The keys of Standard Webhooks 1.0.0: their texts, and objects prepared once that sign or check many times.

`whsec_` is an HMAC-SHA256 secret that both sides hold; `whsk_` an Ed25519 seed, whose public half is `whpk_`.
No key shows its secret in its repr, and no error repeats the text it refuses.
"""

import hmac
from base64 import b64decode, b64encode
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_HMAC: Final = "whsec_"
_PRIVATE: Final = "whsk_"
_PUBLIC: Final = "whpk_"
_HMAC_BYTES: Final = range(24, 64 + 1)
_ED25519_BYTES: Final = range(32, 32 + 1)


class HmacKey:
    """Signs and checks `v1`."""

    version: Final = "v1"

    def __init__(self, secret: bytes) -> None:
        # 1 KB in 2.1 µs by copies of this state; 2.7 by hmac.digest, which hashes the key anew each time.
        self._keyed = hmac.new(secret, digestmod="sha256")

    def sign(self, head: bytes, body: bytes) -> str:
        """The signature of head + body, in base64."""
        state = self._keyed.copy()
        state.update(head)
        state.update(body)
        return b64encode(state.digest()).decode()

    def accepts(self, signature: str, head: bytes, body: bytes) -> bool:
        """Whether this is the signature of head + body; the time it takes tells nothing about how near it was."""
        # Any text may come in here, lone surrogates included, and compare_digest wants ASCII or bytes.
        return hmac.compare_digest(signature.encode(errors="replace"), self.sign(head, body).encode())


class Ed25519PublicHalf:
    """Checks `v1a`."""

    version: Final = "v1a"

    def __init__(self, public: Ed25519PublicKey) -> None:
        self._public = public

    def accepts(self, signature: str, head: bytes, body: bytes) -> bool:
        """Whether the private half made this signature of head + body."""
        try:
            self._public.verify(_bytes_of(signature), head + body)
        except (InvalidSignature, ValueError):
            return False
        return True

    @property
    def text(self) -> str:
        """What receivers are given: `whpk_…`."""
        return _PUBLIC + b64encode(self._public.public_bytes_raw()).decode()


class Ed25519Key:
    """Signs `v1a`."""

    version: Final = "v1a"

    def __init__(self, seed: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = Ed25519PublicHalf(self._private.public_key())

    def sign(self, head: bytes, body: bytes) -> str:
        """The signature of head + body, in base64."""
        return b64encode(self._private.sign(head + body)).decode()


SigningKey: TypeAlias = HmacKey | Ed25519Key
CheckingKey: TypeAlias = HmacKey | Ed25519PublicHalf


def hmac_secret(random: bytes) -> str:
    """The text of an HMAC secret made of 24 to 64 random bytes."""
    return _HMAC + b64encode(_sized(random, _HMAC_BYTES)).decode()


def ed25519_secret(random: bytes) -> str:
    """The text of an Ed25519 private key made of 32 random bytes."""
    return _PRIVATE + b64encode(_sized(random, _ED25519_BYTES)).decode()


def signing_key(text: str) -> SigningKey:
    """The key of a `whsec_` or `whsk_` text. Raises ValueError with a sentence for the one who sent it."""
    if text.startswith(_HMAC):
        return HmacKey(_key_bytes(text, _HMAC, _HMAC_BYTES))
    if text.startswith(_PRIVATE):
        return Ed25519Key(_key_bytes(text, _PRIVATE, _ED25519_BYTES))
    raise ValueError(f"A signing secret starts with {_HMAC} (HMAC) or {_PRIVATE} (Ed25519).")


def checking_key(text: str) -> CheckingKey:
    """The key a receiver checks with, from `whsec_` or `whpk_`. Raises ValueError with a sentence that says why."""
    if text.startswith(_HMAC):
        return HmacKey(_key_bytes(text, _HMAC, _HMAC_BYTES))
    if text.startswith(_PUBLIC):
        raw = _key_bytes(text, _PUBLIC, _ED25519_BYTES)
        return Ed25519PublicHalf(Ed25519PublicKey.from_public_bytes(raw))
    raise ValueError(f"A checking key starts with {_HMAC} (HMAC) or {_PUBLIC} (Ed25519).")


def _key_bytes(text: str, prefix: str, sizes: range) -> bytes:
    try:
        return _sized(_bytes_of(text.removeprefix(prefix)), sizes)
    except ValueError:
        raise ValueError(f"A {prefix} key is {prefix} and the base64 of {_words(sizes)} bytes.") from None


def _sized(raw: bytes, sizes: range) -> bytes:
    if len(raw) not in sizes:
        raise ValueError(f"A key of this kind has {_words(sizes)} bytes.")
    return raw


def _words(sizes: range) -> str:
    return f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def _bytes_of(base64: str) -> bytes:
    raw = b64decode(base64)
    # b64decode skips strange characters and stray bits; only one spelling is right.
    if b64encode(raw).decode() != base64:
        raise ValueError("not base64")
    return raw
