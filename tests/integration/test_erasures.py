"""Erasures: what goes, what stays, who waits for whom; wherever one is stopped, it goes on."""

import json
import time
from datetime import timedelta
from hashlib import sha256
from typing import Any, LiteralString
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, text

from app.core import by_hand, deliveries, erasures, redrives, replays
from app.core import endpoints as endpoint_core
from app.core import events as event_core
from app.core import jobs as core
from app.core.clock import LedgerClock
from app.core.events import Accepted, KeyTaken
from app.core.jobs import advance
from app.core.requests import Requests
from app.core.reservations import Hold, Refused, hold
from app.domain.identity import number, public_id
from app.domain.signing_keys import hmac_secret
from app.domain.states import DeliveryStatus, JobKind, JobStatus, KeyScope, Outcome
from app.ledger import endpoints, idempotency, jobs, keys
from app.ledger.dead_letters import Filter
from app.ledger.events import NewEvent
from app.ledger.idempotency import Kept, Request
from app.ledger.jobs import Job
from app.ledger.sealing import Sealer
from app.runtime import make_dispatcher, open_runtime
from app.sending.engine import Places
from app.settings import load
from tests.clock import Clock
from tests.conftest import Connect
from tests.ledgers import (
    TENANT,
    TERMS,
    an_endpoint,
    claimed,
    dead,
    deliveries_of,
    ending,
    row,
    rows,
    some_events,
)
from tests.plain import refused
from tests.processes import KEY
from tests.receivers import Receiver

BY = "cli:tester"
DATA = '{"name": "Ada", "é": 1.0}'
SEALER = Sealer([KEY])
# Every table that says whose its rows are, and whether it is empty of a tenant that was erased. One that is missing
# here, or there, is a table that somebody has forgotten to erase.
ERASED = {"api_keys", "dead_letters", "deliveries", "endpoints", "events", "outbox", "reservations", "sql_grants"}
ERASED |= {"kept_answers", "subscriptions"}
KEPT = {"audit_log", "jobs"}  # of jobs, the erasure itself


def erase(engine: Engine, event: int) -> int:
    with engine.begin() as connection:
        job = erasures.start_event(connection, TENANT, event, BY)
    assert job is not None
    return job.seq


def erase_tenant(engine: Engine, tenant: str = TENANT) -> int:
    with engine.begin() as connection:
        job = erasures.start_tenant(connection, tenant, BY)
    assert job is not None
    return job.seq


def job(engine: Engine, seq: int, tenant: str = TENANT) -> Job:
    with engine.begin() as connection:
        found = jobs.find(connection, tenant, seq)
    assert found is not None
    return found


def work(engine: Engine, clock: Clock, seq: int, tenant: str = TENANT, most: int = 500) -> Job:
    """Goes on until the job has ended."""
    for _ in range(most):
        advance(engine, [seq])
        now = job(engine, seq, tenant)
        if now.status not in (JobStatus.QUEUED, JobStatus.RUNNING):
            return now
        clock.advance(seconds=1)
    raise AssertionError(f"it has not ended: {now}")


def post(engine: Engine, **fields: Any) -> list[Accepted] | KeyTaken:
    asked = NewEvent(**{"type": "order.placed", "data": DATA, **fields})
    with engine.begin() as connection:
        return event_core.accept(connection, TENANT, [asked])


def attempts(engine: Engine, delivery: int) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        found = text("SELECT outcome, excerpt, location FROM duehook.attempts WHERE delivery = :id ORDER BY number")
        return [tuple(each) for each in connection.execute(found, {"id": delivery})]


def audited(engine: Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        found = text("SELECT tenant, actor, action, subject FROM duehook.audit_log ORDER BY seq")
        return [tuple(each) for each in connection.execute(found)]


def test_the_bytes_go_and_identity_digest_and_history_stay(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine), an_endpoint(engine)
    (event,) = some_events(engine, key="order-1", data=DATA)
    done, waiting = deliveries_of(engine, event)
    (claim,) = claimed(engine, done)
    echo = ending(claim, excerpt=b"hello Ada", location="https://x/?name=Ada", status_code=200)
    deliveries.record(engine, [echo], max_age=TERMS.max_age)
    before = row(engine, "events", "seq", event)
    ended = work(engine, clock, erase(engine, event))
    after = row(engine, "events", "seq", event)
    assert after["data"] is None
    assert after["digest"] == sha256(f"{before['head']}{DATA}}}".encode()).digest()
    assert after["erased_at"] is not None and after["cancelled_at"] is not None
    gone = {"data", "digest", "erased_at", "cancelled_at"}
    assert {name: after[name] for name in after.keys() - gone} == {name: before[name] for name in before.keys() - gone}
    assert row(engine, "deliveries", "id", done)["status"] == "delivered"
    assert row(engine, "deliveries", "id", waiting)["status"] == "cancelled"
    assert attempts(engine, done) == [("delivered", None, None)]
    assert (ended.status, ended.done, ended.total) == (JobStatus.COMPLETED, 2, 2)
    assert ended.result == {"erased": {"events": 1, "excerpts": 1}}
    subject = public_id("evt", event)
    assert audited(engine) == [
        (TENANT, BY, "event.erasure_asked", subject),
        (TENANT, BY, "event.erased", subject),
    ]
    again = work(engine, clock, erase(engine, event))
    assert (again.status, again.result) == (JobStatus.COMPLETED, {"erased": {}})
    assert row(engine, "events", "seq", event) == after, "a repeat changes nothing"


def test_an_event_that_waits_for_its_time_is_never_fanned_out(engine: Engine, clock: Clock) -> None:
    an_endpoint(engine)
    (event,) = some_events(engine, delay_seconds=3600, data=DATA)
    work(engine, clock, erase(engine, event))
    clock.advance(hours=2)
    event_core.fan_out(engine, [event])
    assert deliveries_of(engine, event) == []


def test_what_is_in_the_air_ends_as_a_cancel_lets_it_and_what_was_answered_goes_too(
    engine: Engine, clock: Clock
) -> None:
    an_endpoint(engine), an_endpoint(engine)
    (event,) = some_events(engine, data=DATA)
    first, second = claimed(engine, *deliveries_of(engine, event))
    seq = erase(engine, event)
    for _ in range(5):
        advance(engine, [seq])
        clock.advance(seconds=1)
    assert row(engine, "events", "seq", event)["data"] is None, "the bytes wait for nobody"
    assert job(engine, seq).status is JobStatus.RUNNING, "but their echo is still to come"
    echo: dict[str, Any] = {"excerpt": b"hello Ada", "location": "https://x/?name=Ada"}
    deliveries.record(engine, [ending(first, **echo), ending(second, Outcome.FAILED, **echo)], max_age=TERMS.max_age)
    ended = work(engine, clock, seq)
    states = [row(engine, "deliveries", "id", each.delivery)["status"] for each in (first, second)]
    assert (states, ended.status) == (["delivered", "cancelled"], JobStatus.COMPLETED)
    assert attempts(engine, first.delivery) == [("delivered", None, None)]
    assert attempts(engine, second.delivery) == [("failed", None, None)]


def test_a_claim_whose_event_is_erased_before_it_was_read_is_not_sent_and_ends_as_cancelled(
    engine: Engine, clock: Clock
) -> None:
    with engine.begin() as connection:
        sent_to = endpoint_core.create(connection, SEALER, TENANT, endpoint_core.Wanted("http://127.0.0.1:9/", ["*"]))
    assert sent_to.secret
    (event,) = some_events(engine, data=DATA)
    (claim,) = claimed(engine, *deliveries_of(engine, event))
    advance(engine, [seq := erase(engine, event)])
    requests = Requests(engine, SEALER, Places(10, 10), version="1", deadline=timedelta(seconds=15))
    prepared = requests.prepare([claim], clock.now)
    assert (prepared.sends, prepared.unsendable, prepared.erased) == ([], [], [claim])
    deliveries.give_back(engine, prepared.erased)
    assert row(engine, "deliveries", "id", claim.delivery)["status"] == "cancelled"
    assert work(engine, clock, seq).status is JobStatus.COMPLETED


def test_a_worker_that_meets_one_sends_the_others_and_ends_its_claim(engine: Engine, database_url: str) -> None:
    receiver = Receiver()
    receiver.register(engine)
    erased, other = some_events(engine, 2, data=DATA)
    claims = claimed(engine, *deliveries_of(engine, erased), *deliveries_of(engine, other))
    settings = load(database_url=database_url, secrets_key=KEY, allowed_networks="127.0.0.0/8")
    runtime = open_runtime(settings, application_name="test", pool_size=4)
    dispatcher = make_dispatcher(runtime, LedgerClock(runtime.engine))
    advance(engine, [erase(engine, erased)])
    dispatcher.send(claims, time.monotonic())
    dispatcher.settle()
    dispatcher.stop()
    runtime.close()
    receiver.close()
    states = [row(engine, "deliveries", "id", each.delivery)["status"] for each in claims]
    assert (states, [each.event_id for each in receiver.received]) == (
        ["cancelled", "delivered"],
        [public_id("evt", other)],
    )


def test_the_same_key_posted_again_is_told_by_the_digest(engine: Engine, clock: Clock) -> None:
    made = post(engine, key="order-1")
    assert isinstance(made, list)
    seq = number("evt", made[0].id)
    assert seq
    work(engine, clock, erase(engine, seq))
    again = post(engine, key="order-1")
    assert isinstance(again, list)
    assert (again[0].made, again[0].id) == (False, made[0].id)
    for other in ({"data": DATA.replace(" ", "")}, {"data": "null"}, {"type": "order.paid"}, {"request": "{}"}):
        assert isinstance(post(engine, key="order-1", **other), KeyTaken)


def test_nothing_of_it_can_be_sent_again(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    delivery, other = dead(engine, 2, data=DATA)
    (event,) = rows(engine, "SELECT event FROM duehook.deliveries WHERE id = :id", id=delivery)
    with engine.begin() as connection:
        event_core.cancel(connection, TENANT, row(engine, "deliveries", "id", other)["event"])
    work(engine, clock, erase(engine, event))
    with engine.begin() as connection:
        for again in (by_hand.retry, redrives.redrive):
            found = again(connection, TENANT, delivery)
            assert isinstance(found, Refused)
            assert found.why == f"{public_id('dlv', delivery)} can't be sent again; its event was erased"
        redriving = redrives.start(connection, TENANT, Filter(), None).seq
        since = clock.now - timedelta(days=1)
        statuses = [DeliveryStatus.DEAD, DeliveryStatus.CANCELLED]
        replaying = replays.start(connection, TENANT, endpoint, since=since, until=None, statuses=statuses)
        later = an_endpoint_of(connection)
        anew = replays.start(connection, TENANT, later, since=since, until=None, statuses=statuses)
    assert isinstance(replaying, Job) and isinstance(anew, Job)
    skipped = {"event_erased": 1, "event_cancelled": 1}
    assert (work(engine, clock, redriving).result or {})["skipped"] == skipped
    for each in (replaying, anew):
        assert (work(engine, clock, each.seq).result or {})["skipped"].items() >= skipped.items()
    assert row(engine, "deliveries", "id", delivery)["status"] == "dead"
    assert len(deliveries_of(engine, event)) == 1


def test_the_database_itself_opens_nothing_of_it_again(engine: Engine, connect: Connect, clock: Clock) -> None:
    """Whoever writes it past our statements: a repair by hand, or an older version of this program."""
    an_endpoint(engine)
    (delivery,) = dead(engine, 1, data=DATA)
    work(engine, clock, erase(engine, row(engine, "deliveries", "id", delivery)["event"]))
    db = connect(autocommit=True)
    with refused(db, "DH001", "can't be re-opened: its event was erased"):
        db.execute(
            """UPDATE duehook.deliveries SET status = 'scheduled', round = round + 1, step = 0, reason = NULL
                WHERE id = %s""",
            [delivery],
        )
    assert row(engine, "deliveries", "id", delivery)["status"] == "dead"


def an_endpoint_of(connection: Connection) -> int:
    return endpoints.insert(connection, TENANT, url="http://127.0.0.1:9/", event_types=["order.*"]).seq


def test_the_guard_lets_out_only_what_is_erased_and_never_back(engine: Engine, connect: Connect, clock: Clock) -> None:
    an_endpoint(engine)
    (event,) = some_events(engine, data=DATA)
    (other,) = some_events(engine, data=DATA)
    db = connect(autocommit=True)
    by_hand_: dict[str, Any] = {"event": event, "digest": sha256(b"another").digest()}
    right = "duehook.event_digest(head, data)"
    set_ = "UPDATE duehook.events SET {} WHERE seq = %(event)s"
    with refused(db, "DH003", "nobody has asked"):
        db.execute("SELECT duehook.erase_event(%s)", [event])
    with engine.begin() as connection:
        assert erasures.start_event(connection, TENANT, event, BY)
    with refused(db, "DH003", "has deliveries that are not finished"):
        db.execute("SELECT duehook.erase_event(%s)", [event])
    db.execute("UPDATE duehook.deliveries SET status = 'cancelled'")
    whole = f"data = NULL, erased_at = now(), cancelled_at = now(), digest = {right}"
    for change in (whole, "data = NULL", "data = '1'", "erased_at = now()", "digest = %(digest)s"):
        with refused(db, "DH003"):
            db.execute(set_.format(change).encode(), by_hand_)
    wrong = (
        "data = NULL, erased_at = now(), cancelled_at = now(), digest = %(digest)s",
        f"data = NULL, erased_at = now(), digest = {right}",
        f"data = NULL, cancelled_at = now(), digest = {right}",
        f"data = '2', erased_at = now(), cancelled_at = now(), digest = {right}",
        f"data = NULL, erased_at = now(), cancelled_at = now(), digest = {right}, request = 'x'",
    )
    for change in wrong:
        with refused(db, "DH003"):
            db.execute("SELECT set_config('duehook.erasing', 'on', true)")
            db.execute(set_.format(change).encode(), by_hand_)
    assert db.execute("SELECT duehook.erase_event(%s)", [event]).fetchone() == (True,)
    assert db.execute("SELECT duehook.erase_event(%s)", [event]).fetchone() == (False,)
    for back in ("data = '1', erased_at = NULL, digest = NULL", "data = '1'", "erased_at = now()"):
        with refused(db, "DH003"):
            db.execute("SELECT set_config('duehook.erasing', 'on', true)")
            db.execute(set_.format(back).encode(), by_hand_)
    with refused(db, "DH001", "its event was erased"):
        db.execute("UPDATE duehook.deliveries SET status = 'scheduled', round = 2 WHERE event = %s", [event])
    db.execute("UPDATE duehook.deliveries SET status = 'scheduled', round = 2 WHERE event = %s", [other])
    with db.transaction():
        db.execute("SELECT duehook.erase_event(%s)", [event])
        with refused(db, "DH003"):
            db.execute(set_.format(whole).encode(), {"event": other})
    with refused(db, "DH003"):
        db.execute(
            "INSERT INTO duehook.events (tenant, type, data, erased_at, digest) VALUES ('acme', 'a', '1', now(), '')"
        )
    db.execute("UPDATE duehook.deliveries SET status = 'cancelled' WHERE status = 'scheduled'")


def test_many_deliveries_are_gone_through_in_steps(
    engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "rows_of", lambda rate: 3)
    monkeypatch.setattr(core, "rows_after", lambda rows, seconds: 3)
    for _ in range(7):
        an_endpoint(engine)
    (event,) = some_events(engine, data=DATA)
    claims = claimed(engine, *deliveries_of(engine, event))
    deliveries.record(engine, [ending(each, excerpt=b"Ada") for each in claims], max_age=TERMS.max_age)
    ended = work(engine, clock, erase(engine, event))
    assert (ended.done, ended.total, ended.result) == (7, 7, {"erased": {"events": 1, "excerpts": 7}})


def test_an_event_of_another_tenant_or_of_none_is_not_erased(engine: Engine) -> None:
    (event,) = some_events(engine)
    with engine.begin() as connection:
        assert erasures.start_event(connection, "rival", event, BY) is None
        assert erasures.start_event(connection, TENANT, 1, BY) is None
    assert audited(engine) == []


# The whole of a tenant.


def live(engine: Engine, tenant: str = TENANT, count: int = 5) -> None:
    """A bit of everything that a tenant may have, some of it of every state."""
    with engine.begin() as connection:
        keys.insert(connection, tenant, KeyScope.OPERATOR, uuid4().bytes * 2)
        connection.execute(text("INSERT INTO duehook.sql_grants VALUES ('someone', :tenant)"), {"tenant": tenant})
        for _ in range(2):
            wanted = endpoint_core.Wanted("http://127.0.0.1:9/", ["*"], headers={"x-token": "t"}, max_in_flight=50)
            made = endpoint_core.create(connection, SEALER, tenant, wanted).endpoint
        endpoint_core.disable(connection, tenant, made.seq)
        for n in range(count):
            hold(connection, tenant, Hold(id=f"rsv_{n}", resource=f"seat {n}", hold_seconds=60, data=DATA))
        jobs.insert(connection, tenant, JobKind.REDRIVE, {})
        for n in range(count):
            asked_once = Request(sha256(f"{tenant} {n}".encode()).digest(), tenant, sha256(b"").digest())
            assert idempotency.keep(connection, asked_once, Kept(200, DATA.encode()))
        asked = [NewEvent("order.placed", DATA, key=f"order-{n}") for n in range(count)]
        asked.append(NewEvent("order.later", DATA, delay_seconds=3600))
        event_core.accept(connection, tenant, asked)
    due = rows(engine, "SELECT id FROM duehook.deliveries WHERE tenant = :t AND status = 'scheduled'", t=tenant)
    claims = deliveries.claim(engine, due, TERMS, deliveries.Room(total=100, each=100)).claims
    ends = [ending(each, excerpt=b"hello Ada") for each in claims[::2]]
    ends += [ending(each, Outcome.REFUSED, status=DeliveryStatus.DEAD, reason="refused") for each in claims[1::2]]
    deliveries.record(engine, ends, max_age=TERMS.max_age)


def tables_with_tenants(engine: Engine) -> set[str]:
    query = """SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
                WHERE c.relnamespace = 'duehook'::regnamespace AND c.relkind IN ('r', 'p') AND a.attname = 'tenant'
                  AND NOT a.attisdropped AND a.attnum > 0"""
    return set(rows(engine, query))


def left(engine: Engine, tenant: str = TENANT) -> dict[str, int]:
    counted = {
        name: rows(engine, f"SELECT count(*) FROM duehook.{name} WHERE tenant = :tenant", tenant=tenant)[0]
        for name in tables_with_tenants(engine) - {"audit_log"}
    }
    return {name: number for name, number in counted.items() if number}


def orphans(engine: Engine) -> list[Any]:
    """Rows of tables without a tenant that belong to nobody any more."""
    return rows(
        engine,
        """SELECT delivery FROM duehook.attempts a WHERE NOT EXISTS (
                  SELECT FROM duehook.deliveries WHERE id = a.delivery)
            UNION ALL SELECT endpoint FROM duehook.secrets s WHERE NOT EXISTS (
                  SELECT FROM duehook.endpoints WHERE seq = s.endpoint)
            UNION ALL SELECT endpoint FROM duehook.paces p WHERE NOT EXISTS (
                  SELECT FROM duehook.endpoints WHERE seq = p.endpoint)
            UNION ALL SELECT delivery FROM duehook.seats s WHERE NOT EXISTS (
                  SELECT FROM duehook.deliveries WHERE id = s.delivery)""",
    )


def whole(engine: Engine, tenant: str) -> list[Any]:
    return [
        rows(engine, f"SELECT t::text FROM duehook.{name} t WHERE tenant = :tenant ORDER BY 1", tenant=tenant)
        for name in sorted(tables_with_tenants(engine))
    ]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of three rows."""
    monkeypatch.setattr(core, "rows_of", lambda rate: 3)
    monkeypatch.setattr(core, "rows_after", lambda rows, seconds: 3)


def test_every_table_that_knows_tenants_is_erased_or_kept_on_purpose(engine: Engine) -> None:
    assert tables_with_tenants(engine) == ERASED | KEPT


@pytest.mark.parametrize("stop", [None, *erasures.PHASES])
def test_everything_of_a_tenant_goes_and_nothing_of_another_whoever_is_killed_in_the_middle(
    engine: Engine, clock: Clock, small: None, stop: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(engine)
    live(engine, "rival")
    before, had = whole(engine, "rival"), left(engine)
    seq = erase_tenant(engine)
    if stop is not None:
        dies_in(monkeypatch, stop)
    ended = work(engine, clock, seq)
    assert ended.status is JobStatus.COMPLETED, ended.result
    assert left(engine) == {"jobs": 1}
    assert orphans(engine) == []
    assert whole(engine, "rival") == before
    erased = (ended.result or {})["erased"]
    assert erased["reservations"] == had["reservations"] and erased["deliveries"] == had["deliveries"]
    assert erased["events"] >= had["events"] and erased["endpoints"] == had["endpoints"]
    assert ended.done == ended.total == sum(erased.values()), "nothing is counted twice"
    assert [each[2] for each in audited(engine)] == ["tenant.erasure_asked", "tenant.erased"]


def dies_in(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    """The first step of this phase is done, and lost before its commit."""
    as_it_was, deaths = erasures.PHASES[phase], [1]

    def dying(*arguments: Any) -> Any:
        step = as_it_was(*arguments)
        if deaths:
            deaths.pop()
            raise RuntimeError("killed")
        return step

    monkeypatch.setitem(erasures.PHASES, phase, dying)


def test_nothing_is_sent_meanwhile_and_what_is_in_the_air_is_waited_for(
    engine: Engine, clock: Clock, small: None
) -> None:
    an_endpoint(engine)
    flying, *waiting = [each for event in some_events(engine, 5, data=DATA) for each in deliveries_of(engine, event)]
    (claim,) = claimed(engine, flying)
    seq = erase_tenant(engine)
    advance(engine, [seq])
    assert deliveries.claim(engine, waiting, TERMS, deliveries.Room(total=100, each=100)).claims == []
    for _ in range(20):
        advance(engine, [seq])
        clock.advance(seconds=1)
    assert rows(engine, "SELECT id FROM duehook.deliveries") == [flying]
    assert job(engine, seq).status is JobStatus.RUNNING
    states = deliveries.record(engine, [ending(claim, Outcome.FAILED)], max_age=TERMS.max_age)
    assert states == {flying: DeliveryStatus.CANCELLED}
    assert work(engine, clock, seq).status is JobStatus.COMPLETED
    assert left(engine) == {"jobs": 1}


MAKING = {
    "an event": "INSERT INTO duehook.events (tenant, type, data) VALUES ('acme', 'a', '1')",
    "a reservation": "INSERT INTO duehook.reservations (tenant, resource, expires_at)"
    " VALUES ('acme', 'seat', now() + interval '1 h')",
    "an endpoint": "INSERT INTO duehook.endpoints (tenant, url, event_types) VALUES ('acme', 'http://x/', '{*}')",
    "a job": "INSERT INTO duehook.jobs (tenant, kind, parameters) VALUES ('acme', 'redrive', '{}')",
    "a key": "INSERT INTO duehook.api_keys (tenant, scope, hash) VALUES ('acme', 'producer', sha256('1'))",
    "a grant": "INSERT INTO duehook.sql_grants VALUES ('someone', 'acme')",
}


def test_nobody_makes_anything_for_a_tenant_that_is_being_erased(
    engine: Engine, connect: Connect, clock: Clock
) -> None:
    db = connect(autocommit=True)
    seq = erase_tenant(engine)
    for making in MAKING.values():
        with refused(db, "DH007", "the tenant acme is being erased"):
            db.execute(making.encode())
        db.execute(making.replace("acme", "rival").replace("sha256('1')", "sha256('2')").encode())
    assert work(engine, clock, seq).status is JobStatus.COMPLETED
    for making in MAKING.values():
        db.execute(making.encode())
    assert left(engine)["events"] == 1, "the name may be used again"
    with engine.begin() as connection:
        assert isinstance(core.cancel(connection, TENANT, rows(engine, "SELECT max(seq) FROM duehook.jobs")[0]), Job)


def test_its_keys_open_nothing_and_its_grants_are_gone_from_the_moment_it_was_asked_for(engine: Engine) -> None:
    live(engine)
    erase_tenant(engine)
    assert rows(engine, "SELECT count(*) FROM duehook.api_keys WHERE revoked_at IS NULL") == [0]
    assert rows(engine, "SELECT count(*) FROM duehook.sql_grants") == [0]


def test_one_is_enough_and_a_cancelled_one_opens_the_tenant_again_and_says_how_far_it_came(
    engine: Engine, clock: Clock, small: None, connect: Connect
) -> None:
    live(engine)
    seq = erase_tenant(engine)
    assert erase_tenant(engine) == seq
    for _ in range(6):
        advance(engine, [seq])
        clock.advance(seconds=1)
    with engine.begin() as connection:
        cancelled = core.cancel(connection, TENANT, seq)
    assert isinstance(cancelled, Job)
    assert cancelled.done > 0 and (cancelled.result or {})["erased"]
    connect(autocommit=True).execute(MAKING["an event"].encode())
    second = erase_tenant(engine)
    assert second != seq
    assert work(engine, clock, second).status is JobStatus.COMPLETED
    assert left(engine) == {"jobs": 2}, "both, which say what was done"
    assert rows(engine, "SELECT count(*) FROM duehook.events WHERE type = 'job.completed'") == [0], "nobody is left"


@pytest.mark.parametrize("begins", ["before it was asked for", "before its first step"])
def test_what_an_open_transaction_makes_meanwhile_is_found_when_it_commits(
    engine: Engine, clock: Clock, connect: Connect, begins: str
) -> None:
    an_endpoint(engine)
    producer = connect()
    seq = 0
    if begins == "before its first step":
        producer.execute("SELECT 1")
        with engine.begin() as connection:  # the producer's statement is done before this one commits
            started = erasures.start_tenant(connection, TENANT, BY)
            assert started is not None
            seq = started.seq
            producer.execute(MAKING["an event"].encode())
    else:
        producer.execute(MAKING["an event"].encode())
        seq = erase_tenant(engine)
    for _ in range(20):
        advance(engine, [seq])
        clock.advance(seconds=1)
    assert job(engine, seq).status is JobStatus.RUNNING, "somebody is about to make something"
    producer.commit()
    assert work(engine, clock, seq).status is JobStatus.COMPLETED
    assert left(engine) == {"jobs": 1}


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("making", MAKING)
def test_whoever_looks_at_a_snapshot_from_before_is_waited_for(
    engine: Engine, connect: Connect, clock: Clock, isolation: LiteralString, making: str
) -> None:
    """It has no number yet that others' snapshots know, and what it sees has no erasure in it."""
    live(engine)
    producer = connect()
    producer.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
    producer.execute("SELECT FROM duehook.events LIMIT 1")
    seq = erase_tenant(engine)
    for _ in range(20):
        advance(engine, [seq])
        clock.advance(seconds=1)
    assert job(engine, seq).status is JobStatus.RUNNING, "somebody is about to make something"
    producer.execute(MAKING[making].encode())
    producer.commit()
    assert work(engine, clock, seq).status is JobStatus.COMPLETED
    assert left(engine) == {"jobs": 1}
    assert orphans(engine) == []


def test_a_reservation_that_runs_out_meanwhile_harms_nobody(engine: Engine, clock: Clock, small: None) -> None:
    live(engine)
    seq = erase_tenant(engine)
    clock.advance(hours=1)
    with engine.begin() as connection:
        expired = connection.execute(text("UPDATE duehook.reservations SET status = 'expired' WHERE status = 'held'"))
        assert expired.rowcount == 5
    assert work(engine, clock, seq).status is JobStatus.COMPLETED
    assert left(engine) == {"jobs": 1}


def test_what_is_parked_goes_with_its_endpoint(engine: Engine, clock: Clock) -> None:
    endpoint = an_endpoint(engine)
    ids = [each for event in some_events(engine, 3) for each in deliveries_of(engine, event)]
    deliveries.park(engine, ids)
    with engine.begin() as connection:
        endpoint_core.disable(connection, TENANT, endpoint)
    assert work(engine, clock, erase_tenant(engine)).status is JobStatus.COMPLETED
    assert left(engine) == {"jobs": 1}


def test_a_tenant_that_has_nothing_is_erased_too(engine: Engine, clock: Clock) -> None:
    ended = work(engine, clock, erase_tenant(engine, "nobody"), "nobody")
    assert (ended.status, ended.done, ended.result) == (JobStatus.COMPLETED, 0, {"erased": {}})


def test_nothing_that_a_tenant_wrote_is_in_the_audit_log(engine: Engine, clock: Clock) -> None:
    live(engine)
    work(engine, clock, erase_tenant(engine))
    told = json.dumps(rows(engine, "SELECT details::text FROM duehook.audit_log"))
    assert not [word for word in ("Ada", "http", "token", hmac_secret(b"x" * 24)[:6]) if word in told]
