"""What an owner may not ask of an endpoint, judged before anything is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.addresses import Networks, why_refused
from app.domain.signing_keys import Ed25519Key, signing_key
from app.domain.urls import Unacceptable, parse_headers, parse_url

MASK = "********"


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why a member of a request is refused: one sentence for its owner."""

    member: str
    why: str


def vet(members: Mapping[str, Any], allowed: Networks) -> list[Unfit]:
    """All that is wrong with what is asked; members that are missing or null are not judged."""
    url, headers, secret = (members.get(name) for name in ("url", "headers", "secret"))
    unfit = [
        None if url is None else _vet_url(url, allowed),
        None if headers is None else _vet_headers(headers),
        None if secret is None else _vet_secret(secret, members.get("signing", "hmac")),
    ]
    return [each for each in unfit if each is not None]


def _vet_url(url: str, allowed: Networks) -> Unfit | None:
    """What is wrong with a URL or the address in it; a name's addresses are vetted at every send instead."""
    parsed = parse_url(url)
    if isinstance(parsed, Unacceptable):
        return Unfit("url", parsed.sentence)
    refused = None if parsed.literal is None else why_refused(parsed.literal, allowed)
    if refused is None:
        return None
    return Unfit("url", f"nothing is sent to this address: {refused}; DUEHOOK_ALLOWED_NETWORKS can allow its network")


def _vet_headers(headers: Mapping[str, str]) -> Unfit | None:
    """What is wrong with the headers, the mask of an earlier answer included."""
    accepted = parse_headers(headers)
    if isinstance(accepted, Unacceptable):
        return Unfit("headers", accepted.sentence)
    masked = next((name for name, value in headers.items() if value == MASK), None)
    return (
        None
        if masked is None
        else Unfit("headers", f"the value of {masked} is the mask of an answer; send the value itself")
    )


def _vet_secret(secret: str, signing: str) -> Unfit | None:
    try:
        key = signing_key(secret)
    except ValueError as error:
        return Unfit("secret", str(error))
    fits = isinstance(key, Ed25519Key) == (signing == "ed25519")
    return None if fits else Unfit("secret", f"this is not a secret for {signing}: hmac takes whsec_, ed25519 whsk_")
