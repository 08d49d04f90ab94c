"""Which secrets sign an attempt, while they are rotated: the live ones of its moment, and it says which."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.event import listens_for

from app.core import endpoints as core
from app.core.endpoints import Rotated, Wanted
from app.core.requests import Prepared, Requests
from app.domain.identity import public_id
from app.ledger import endpoints
from app.ledger.sealing import Sealer
from app.sending.engine import Places
from tests.clock import Clock
from tests.ledgers import TENANT, claimed, deliveries_of, some_events

SEALER = Sealer(["a key of this test's with 32 characters"])
ALL = timedelta(days=1)


@pytest.fixture
def requests(engine: Engine) -> Requests:
    return Requests(engine, SEALER, Places(100, 100), version="1", deadline=timedelta(seconds=15))


def an_endpoint(engine: Engine, **members: Any) -> int:
    with engine.begin() as connection:
        return core.create(connection, SEALER, TENANT, Wanted("http://127.0.0.1:9/", ["*"], **members)).endpoint.seq


def rotate(engine: Engine, endpoint: int, overlap: timedelta) -> None:
    with engine.begin() as connection:
        assert isinstance(core.rotate(connection, SEALER, TENANT, endpoint, overlap), Rotated)


def live(engine: Engine, endpoint: int) -> tuple[str, ...]:
    """The key ids that must sign now, the newest first."""
    with engine.begin() as connection:
        return tuple(public_id("key", each.seq) for each in endpoints.secrets(connection, [endpoint]))


def prepared(engine: Engine, requests: Requests, now: datetime) -> Prepared:
    """What becomes of a new event's delivery."""
    (event,) = some_events(engine)
    return requests.prepare(claimed(engine, *deliveries_of(engine, event)), now)


def signed_by(engine: Engine, requests: Requests, now: datetime) -> tuple[str, ...]:
    """The ids of the keys of the next attempt; as many signatures travel with it."""
    (send,) = prepared(engine, requests, now).sends
    (signatures,) = (line for line in send.head.split(b"\r\n") if line.startswith(b"webhook-signature: "))
    assert signatures.count(b"v1,") + signatures.count(b"v1a,") == len(send.subject.key_ids)
    return send.subject.key_ids


def test_the_next_attempt_is_signed_by_the_new_set_although_the_old_one_is_remembered(
    engine: Engine, requests: Requests, clock: Clock
) -> None:
    endpoint = an_endpoint(engine)
    first = signed_by(engine, requests, clock.now)
    assert first == live(engine, endpoint)
    rotate(engine, endpoint, ALL)
    both = signed_by(engine, requests, clock.now)
    assert both == live(engine, endpoint)
    assert both[1:] == first
    rotate(engine, endpoint, timedelta())
    alone = signed_by(engine, requests, clock.now)
    assert alone == live(engine, endpoint)
    assert not set(alone) & set(both)


def test_a_remembered_secret_ends_when_it_ends_and_nobody_has_to_read_it_again(
    engine: Engine, requests: Requests, clock: Clock
) -> None:
    endpoint = an_endpoint(engine)
    rotate(engine, endpoint, timedelta(seconds=60))
    newest, old = signed_by(engine, requests, clock.now)
    just_before = clock.advance(seconds=59.999999)
    assert signed_by(engine, requests, just_before) == (newest, old)
    end = clock.advance(seconds=0.000001)
    read: list[str] = []

    @listens_for(engine, "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        read.append(statement)

    assert signed_by(engine, requests, end) == (newest,)
    assert not [each for each in read if "/* endpoints.secrets */" in each]
    assert live(engine, endpoint) == (newest,)


@pytest.mark.parametrize("between", ["endpoints.load", "endpoints.secrets"])
def test_a_rotation_that_commits_while_an_endpoint_is_being_read_is_seen_by_the_next_attempt(
    engine: Engine, requests: Requests, clock: Clock, between: str
) -> None:
    endpoint = an_endpoint(engine)
    waiting = [timedelta()]

    @listens_for(engine, "before_cursor_execute")
    def rotate_once(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if f"/* {between} */" in statement and waiting:
            rotate(engine, endpoint, waiting.pop())

    prepared(engine, requests, clock.now)
    assert not waiting, "it was rotated in between"
    assert signed_by(engine, requests, clock.now) == live(engine, endpoint)


def test_another_way_of_signing_signs_beside_the_old_one_for_a_day(
    engine: Engine, requests: Requests, clock: Clock
) -> None:
    endpoint = an_endpoint(engine)
    with engine.begin() as connection:
        core.change(connection, SEALER, TENANT, endpoint, {"signing": "ed25519"})
    (send,) = prepared(engine, requests, clock.now).sends
    (line,) = (line for line in send.head.decode().split("\r\n") if line.startswith("webhook-signature: "))
    assert [each.partition(",")[0] for each in line.split(" ")[1:]] == ["v1a", "v1"]
    rotate(engine, endpoint, ALL)
    assert len(signed_by(engine, requests, clock.now)) == 3
    clock.advance(days=1)
    assert len(signed_by(engine, requests, clock.now)) == 1


def test_an_endpoint_whose_every_secret_has_ended_stands_in_nobody_s_way(
    engine: Engine, requests: Requests, clock: Clock
) -> None:
    """As nobody can but the owner of the database: it was live when it was read, and is remembered."""
    damaged, fine = an_endpoint(engine), an_endpoint(engine)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE duehook.secrets SET expires_at = duehook.now() + interval '1 s' WHERE endpoint = :seq"),
            {"seq": damaged},
        )
    assert len(prepared(engine, requests, clock.now).sends) == 2
    found = prepared(engine, requests, clock.advance(seconds=1))
    assert [send.endpoint for send in found.sends] == [fine]
    assert [(claim.endpoint, why) for claim, why in found.unsendable] == [
        (damaged, "the endpoint has no live secret to sign with")
    ]


def test_one_secret_that_no_key_opens_gives_back_its_endpoint_s_deliveries_and_no_others(
    engine: Engine, requests: Requests, clock: Clock
) -> None:
    sealed, fine = an_endpoint(engine), an_endpoint(engine)
    with engine.begin() as connection:
        core.rotate(connection, Sealer(["another key that has 32 characters"]), TENANT, sealed, ALL)
    found = prepared(engine, requests, clock.now)
    assert [send.endpoint for send in found.sends] == [fine]
    assert [claim.endpoint for claim in found.sealed] == [sealed]
    assert found.unsendable == []
