"""What is stored sealed: signing secrets and header values, under a list of keys that can be rotated."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet


class WrongKeyError(Exception):
    """None of the keys opens this; lost infrastructure, never a reason to give up a delivery."""


class Sealer:
    """Seals with the first key and opens with any. Keys are texts of any length, stretched by SHA-256."""

    def __init__(self, keys: Sequence[str]) -> None:
        if not keys:
            raise ValueError("at least one key is needed: set DUEHOOK_SECRETS_KEY")
        self._fernets = [Fernet(base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest())) for key in keys]
        self._fernet = MultiFernet(self._fernets)
        # Tells two processes with different keys apart without telling the keys.
        self.fingerprints = [hashlib.sha256(b"duehook fingerprint " + key.encode()).hexdigest()[:16] for key in keys]

    def seal(self, text: str) -> bytes:
        """Encrypted and authenticated (Fernet), different each time."""
        return self._fernet.encrypt(text.encode())

    def open(self, sealed: bytes) -> str:
        """Raises `WrongKeyError` when it was sealed under none of the keys."""
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken:
            raise WrongKeyError("sealed under a key that is not in DUEHOOK_SECRETS_KEY") from None

    def reseal(self, sealed: bytes) -> bytes | None:
        """The same under the first key; None when it is already. Raises `WrongKeyError` as `open` does."""
        try:
            self._fernets[0].decrypt(sealed)
        except InvalidToken:
            return self.seal(self.open(sealed))
        return None

    def seal_headers(self, headers: Mapping[str, str]) -> bytes | None:
        """None when there are none."""
        return self.seal(json.dumps(dict(headers))) if headers else None

    def open_headers(self, sealed: bytes | None) -> dict[str, str]:
        """The reverse of `seal_headers`; ValueError for what that can't have sealed."""
        headers = {} if sealed is None else json.loads(self.open(sealed))
        if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
            raise ValueError("sealed headers that are none")
        return headers
