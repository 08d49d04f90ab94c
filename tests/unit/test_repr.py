"""What a log, a debugger or an exception may print of the things that hold secrets: never the secret itself."""

import subprocess
import sys
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from app.api.bodies import parse
from app.api.endpoint_shapes import EndpointChange, NewEndpoint
from app.api.problems import ProblemError
from app.core.endpoints import Created, Rotated, Wanted
from app.core.requests import Request, _Key, _Target
from app.core.vetting import vet
from app.domain.signing_keys import ed25519_secret, hmac_secret, signing_key
from app.domain.urls import EndpointUrl, parse_url
from app.ledger.deliveries import Claim
from app.ledger.endpoints import Endpoint
from app.ledger.events import NewEvent
from app.ledger.sealing import Sealer, WrongKeyError
from app.receiver.verification import Event
from app.sending.engine import Send

HIDDEN = "HIDDENHIDDENHIDDENHIDDENHIDDENHI"
URL = f"https://shop.example/{HIDDEN}?token={HIDDEN}"
HEADERS = {"x-token": HIDDEN}
SECRET = f"whsec_{HIDDEN}"
AT = datetime(2030, 1, 1, tzinfo=UTC)

parsed = parse_url(URL)
assert isinstance(parsed, EndpointUrl)
key = signing_key(SECRET)
endpoint = Endpoint(
    1, "end_1", "acme", URL, None, ("*",), b"", "hmac", "enabled", None, None, False, None, None, None, 1, AT
)
claim = Claim(1, uuid4(), 1, 1, 1, 1, 0)
THINGS = [
    Wanted(URL, ["*"], None, HEADERS, SECRET),
    endpoint,
    Created(endpoint, SECRET),
    Rotated(SECRET, AT),
    parsed,
    _Key("key_1", key, None),
    _Target(1, parsed.origin, HIDDEN.encode(), (_Key("key_1", key, None),), None),
    Send(Request(claim, 1, None, ("key_1",)), 1, parsed.origin, HIDDEN.encode(), HIDDEN.encode()),
    NewEvent("a", f'"{HIDDEN}"'),
    Event("evt_1", 1, HIDDEN.encode()),
    Sealer([HIDDEN]),
    NewEndpoint.model_validate({"url": URL, "event_types": ["*"], "headers": HEADERS, "secret": SECRET}),
    EndpointChange.model_validate({"url": URL, "headers": HEADERS}),
    parse(NewEndpoint, b'{"url":"%b","event_types":["*"],"secret":"%b"}' % (URL.encode(), SECRET.encode())),
]


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: type(thing).__name__)
def test_a_thing_that_holds_a_secret_does_not_show_it(thing: object) -> None:
    assert HIDDEN not in repr(thing) + str(thing) + repr([thing])
    assert HIDDEN.encode().hex() not in repr(thing)
    if is_dataclass(thing):
        assert any(repr(getattr(thing, each.name)) in repr(thing) for each in fields(thing)), "it does show the rest"


@pytest.mark.parametrize(
    "secret", [HIDDEN, f"whsec_{HIDDEN}!", f"whsk_{HIDDEN}", f"whpk_{HIDDEN}", f"v1,whsec_{HIDDEN}"]
)
def test_a_refused_secret_is_not_repeated(secret: str) -> None:
    (unfit,) = vet({"secret": secret, "signing": "hmac"}, ())
    assert unfit.member == "secret"
    assert HIDDEN not in unfit.why


@pytest.mark.parametrize("secret", [f'["{HIDDEN}"]', f'{{"{HIDDEN}": 1}}', "5", "true"])
def test_a_secret_that_is_no_text_is_not_repeated(secret: str) -> None:
    with pytest.raises(ProblemError) as refused:
        parse(NewEndpoint, b'{"url":"http://a.example/","event_types":["*"],"secret":%b}' % secret.encode())
    assert HIDDEN not in str(refused.value) + repr(refused.value.flaws)


def test_what_another_key_sealed_is_refused_without_a_word_of_it() -> None:
    with pytest.raises(WrongKeyError) as refused:
        Sealer(["b" * 32]).open(Sealer([HIDDEN]).seal(SECRET))
    assert HIDDEN not in str(refused.value)


@pytest.mark.parametrize("secret", [hmac_secret(bytes(range(32))), ed25519_secret(bytes(range(32)))])
def test_an_exception_that_nobody_caught_is_logged_without_the_secrets_that_were_at_hand(secret: str) -> None:
    """As the workers log it: the traceback shows lines of source, never the values of variables."""
    program = """
import sys, structlog
from app import settings
from app.logs import configure
from app.core.endpoints import Wanted
configure(settings.load())
secret = sys.argv[1]
wanted = Wanted("http://a.example/", ["*"], secret=secret)
try:
    raise RuntimeError(wanted)
except RuntimeError:
    structlog.get_logger().exception("failed", wanted=repr(wanted))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, secret], capture_output=True, text=True, timeout=60, check=True
    )
    assert "RuntimeError" in ran.stderr
    assert secret not in ran.stderr
