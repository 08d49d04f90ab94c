"""Secrets and the keys they are sealed under, rotated while real processes send."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import Engine, text
from standardwebhooks import Webhook, WebhookVerificationError

from app.core import endpoints as core
from app.core.endpoints import Rotated, Wanted
from app.domain.identity import public_id
from app.ledger import endpoints
from app.ledger.sealing import Sealer
from tests.ledgers import TENANT, rows, some_events
from tests.processes import KEY, Process, Service
from tests.receivers import Answer, Received, Receiver
from tests.service import duehook
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # several workers, one after another, on a busy machine
OLD, NEW = KEY, "a newer key of the tests with 32 characters or more"
SEALER = Sealer([KEY])
TOKEN = {"x-token": "what this receiver asks for"}


@pytest.fixture
def hearing(receiver: Receiver) -> Receiver:
    """A receiver that takes everything; the test verifies."""
    receiver.verify = lambda _body, _headers: None
    return receiver


def subscribed(engine: Engine, receiver: Receiver, sealer: Sealer = SEALER, **members: object) -> tuple[int, str]:
    """A new endpoint that points there, and its secret."""
    wanted = Wanted(receiver.url, ["*"], headers=TOKEN, **members)  # type: ignore[arg-type]
    with engine.begin() as connection:
        made = core.create(connection, sealer, TENANT, wanted)
    return made.endpoint.seq, made.secret


def rotated(engine: Engine, endpoint: int, overlap: timedelta) -> str:
    with engine.begin() as connection:
        made = core.rotate(connection, SEALER, TENANT, endpoint, overlap)
    assert isinstance(made, Rotated)
    return made.secret


def an_event(engine: Engine) -> str:
    (seq,) = some_events(engine)
    return public_id("evt", seq)


def signatures(received: Received) -> int:
    return len(received.headers["webhook-signature"].split(" "))


def verifies(received: Received, secret: str) -> bool:
    """By the published library."""
    try:
        Webhook(secret).verify(received.body, received.headers)
    except WebhookVerificationError:
        return False
    return True


def delivered(engine: Engine, count: int) -> bool:
    states = rows(engine, "SELECT status FROM duehook.deliveries")
    return len(states) == count and set(states) == {"delivered"}


def live_key_ids(engine: Engine, endpoint: int) -> list[str]:
    with engine.begin() as connection:
        return [public_id("key", each.seq) for each in endpoints.secrets(connection, [endpoint])]


def the_one(receiver: Receiver, event: str, attempt: int = 1) -> Received:
    def found() -> list[Received]:
        return [each for each in receiver.received if (each.event_id, each.attempt) == (event, attempt)]

    return wait_until(found, deadline=30, what=f"attempt {attempt} of {event} came")[0]


@contextmanager
def streaming(engine: Engine) -> Iterator[list[str]]:
    """Makes an event every few milliseconds; the list grows by those that are committed."""
    made: list[str] = []
    ending = threading.Event()

    def stream() -> None:
        while not ending.wait(0.02):
            made.append(an_event(engine))

    thread = threading.Thread(target=stream)
    thread.start()
    try:
        yield made
    finally:
        ending.set()
        thread.join()


def some_more(made: list[str], count: int = 10) -> None:
    enough = len(made) + count
    wait_until(lambda: len(made) >= enough, deadline=30, what="more events were made")


def test_secrets_rotated_with_overlap_never_leave_a_receiver_without_one_that_verifies(
    engine: Engine, running: Service, hearing: Receiver
) -> None:
    endpoint, first = subscribed(engine, hearing)
    for started in (running.relay(), running.worker("delivery"), running.worker("delivery")):
        started.wait_ready()
    known = {first: 0}  # each secret, and how many events there were when it began to sign
    with streaming(engine) as made:
        for _ in range(4):
            some_more(made)
            secret = rotated(engine, endpoint, timedelta(hours=1))
            known[secret] = len(made) + 1  # one may have been on its way when the rotation was committed
        some_more(made)
    wait_until(lambda: delivered(engine, len(made)), deadline=60)
    assert hearing.events == dict.fromkeys(made, 1)
    for received in hearing.received:
        must = [secret for secret, since in known.items() if since <= made.index(received.event_id)]
        assert all(verifies(received, secret) for secret in must)
        assert len(must) <= signatures(received) <= 5
    assert signatures(the_one(hearing, made[-1])) == 5


def test_without_overlap_the_next_attempt_is_signed_by_the_new_secret_alone(
    engine: Engine, running: Service, hearing: Receiver
) -> None:
    """Rotated by the owner between two attempts, while the first is still in the air: its secret has leaked."""
    endpoint, secret = subscribed(engine, hearing, retry_schedule=[0.05])
    secrets = [secret]

    def answer(received: Received) -> Answer:
        if received.attempt == 1:
            secrets.append(rotated(engine, endpoint, timedelta()))
        return Answer(500 if received.attempt == 1 else 200)

    hearing.answer = answer
    for started in (running.relay(), running.worker("delivery"), running.worker("delivery")):
        started.wait_ready()
    for round_ in range(5):
        before = live_key_ids(engine, endpoint)
        event = an_event(engine)
        first, second = the_one(hearing, event, 1), the_one(hearing, event, 2)
        assert [verifies(first, each) for each in secrets] == [n == round_ for n in range(round_ + 2)]
        assert [verifies(second, each) for each in secrets] == [n == round_ + 1 for n in range(round_ + 2)]
        assert (signatures(first), signatures(second)) == (1, 1)
        assert first.body == second.body
        wait_until(lambda: delivered(engine, len(secrets) - 1), deadline=30)
        told = rows(engine, "SELECT key_ids FROM duehook.attempts ORDER BY delivery DESC, number LIMIT 2")
        assert told == [before, live_key_ids(engine, endpoint)]


def test_an_old_secret_signs_no_more_once_its_time_is_over_though_nobody_touches_the_endpoint(
    engine: Engine, running: Service, hearing: Receiver
) -> None:
    endpoint, old = subscribed(engine, hearing)
    running.relay().wait_ready()
    running.worker("delivery").wait_ready()
    for seconds in (2, 8, 30):  # a busy machine may not send anything in the time that a shorter overlap takes
        new = rotated(engine, endpoint, timedelta(seconds=seconds))
        both = the_one(hearing, an_event(engine))
        if signatures(both) > 1:
            break
        old = new
    assert (signatures(both), verifies(both, old), verifies(both, new)) == (2, True, True)
    wait_until(lambda: live_key_ids(engine, endpoint)[1:] == [], deadline=40, what="the old one has ended")
    alone = the_one(hearing, an_event(engine))
    assert (signatures(alone), verifies(alone, old), verifies(alone, new)) == (1, False, True)


def test_a_change_of_signing_signs_in_both_ways_and_a_rotation_then_rotates_both(
    engine: Engine, running: Service, hearing: Receiver
) -> None:
    endpoint, old = subscribed(engine, hearing)
    running.relay().wait_ready()
    running.worker("delivery").wait_ready()
    assert signatures(the_one(hearing, an_event(engine))) == 1
    with engine.begin() as connection:
        core.change(connection, SEALER, TENANT, endpoint, {"signing": "ed25519"})
    both = the_one(hearing, an_event(engine))
    assert verifies(both, old)
    assert [each.partition(",")[0] for each in both.headers["webhook-signature"].split(" ")] == ["v1a", "v1"]
    rotated(engine, endpoint, timedelta(hours=1))
    three = the_one(hearing, an_event(engine))
    assert verifies(three, old)
    assert [each.partition(",")[0] for each in three.headers["webhook-signature"].split(" ")] == ["v1a", "v1a", "v1"]
    rotated(engine, endpoint, timedelta())
    alone = the_one(hearing, an_event(engine))
    assert not verifies(alone, old)
    assert [each.partition(",")[0] for each in alone.headers["webhook-signature"].split(" ")] == ["v1a"]


def worker_with(running: Service, *keys: str) -> Process:
    running.environment |= {"DUEHOOK_SECRETS_KEY": ",".join(keys)}
    return running.worker("delivery")


def due_again(engine: Engine) -> None:
    """What was given back is due again in half a minute; nobody waits for it here."""
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE duehook.deliveries SET next_attempt_at = duehook.now() WHERE status = 'scheduled'")
        )
        connection.execute(text("UPDATE duehook.outbox SET look_at = duehook.now() WHERE kind = 'delivery'"))


def given_back(engine: Engine, times: int) -> bool:
    """Whether each of three has been claimed so often, and is nobody's now."""
    found = rows(
        engine, "SELECT count(*) FROM duehook.deliveries WHERE status = 'scheduled' AND attempt >= :n", n=times
    )
    return found == [3]


def test_a_worker_without_the_key_gives_back_and_never_buries_until_one_with_it_comes(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    """As in the middle of a rotation, in a worker that was started with the old key alone."""
    running.relay().wait_ready()
    stale = worker_with(running, OLD).wait_ready()
    subscribed(engine, receiver, Sealer([NEW, OLD]), secret=receiver.secret)
    some_events(engine, 3)
    for times in range(1, 6):
        due_again(engine)
        wait_until(partial(given_back, engine, times), deadline=30, what="all were claimed and given back")
    assert "endpoint_sealed_under_another_key" in stale.log.read_text()
    assert rows(engine, "SELECT 1 FROM duehook.attempts UNION ALL SELECT 1 FROM duehook.dead_letters") == []
    assert rows(engine, "SELECT DISTINCT (step, abandoned) FROM duehook.deliveries") == [("0", "0")]
    assert receiver.received == []
    assert stale.stop() == 0
    worker_with(running, NEW, OLD).wait_ready()
    due_again(engine)
    wait_until(lambda: delivered(engine, 3), deadline=30)
    assert set(receiver.events.values()) == {1}


def test_the_keys_are_rotated_under_load_and_every_event_is_delivered_once(
    engine: Engine, database_url: str, running: Service, receiver: Receiver
) -> None:
    """In the order that the command's help tells."""
    running.relay().wait_ready()
    worker = worker_with(running, OLD).wait_ready()
    lists = ([OLD, NEW], [NEW, OLD], [NEW])
    with streaming(engine) as made:
        subscribed(engine, receiver, Sealer([OLD]), secret=receiver.secret)
        for keys in lists:
            if keys == [NEW]:
                ran = duehook(*("keys", "reencrypt", "--json"), database_url=database_url, secrets_key=f"{NEW},{OLD}")
                assert (ran.returncode, json.loads(ran.stdout)["key_moved"]) == (0, True)
            following = worker_with(running, *keys).wait_ready()
            some_more(made)
            assert worker.stop() == 0
            worker = following
            some_more(made)
    expected = rows(engine, "SELECT count(*) FROM duehook.deliveries")[0]
    wait_until(lambda: delivered(engine, expected), deadline=60)
    assert len(receiver.received) == expected > 50
    assert set(receiver.events.values()) == {1}
    assert {each.headers["x-token"] for each in receiver.received} == set(TOKEN.values())
    assert rows(engine, "SELECT DISTINCT outcome FROM duehook.attempts") == ["delivered"]
    logs = "".join(log.read_text() for log in running.folder.glob("*.log"))
    assert "sealed_under_another_key" not in logs
    refused = worker_with(running, OLD)
    wait_until(lambda: not refused.running, deadline=30, what="it refuses to start")
    said = refused.log.read_text()
    assert f"set the key with the fingerprint {Sealer([NEW]).fingerprints[0]}" in said
    assert refused._popen.returncode == 1


def test_a_process_with_keys_of_its_own_refuses_to_start_and_buries_nothing(
    engine: Engine, running: Service, receiver: Receiver
) -> None:
    running.relay().wait_ready()  # its keys are the ledger's from now on
    subscribed(engine, receiver, secret=receiver.secret)
    some_events(engine)
    refused = worker_with(running, "a key of another service with 32 characters or more")
    wait_until(lambda: not refused.running, deadline=30, what="it refuses to start")
    assert refused._popen.returncode == 1
    assert "DUEHOOK_SECRETS_KEY holds none of the keys" in refused.log.read_text()
    assert rows(engine, "SELECT status FROM duehook.deliveries") == ["scheduled"]
    worker_with(running, OLD).wait_ready()
    wait_until(lambda: delivered(engine, 1), deadline=30)
