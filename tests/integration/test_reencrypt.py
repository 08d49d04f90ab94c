"""The end of a rotation of the keys that secrets are sealed under: everything under the first, whoever works beside."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.event import listens_for, remove

from app.core import endpoints as core
from app.core import resealing
from app.core.endpoints import Wanted
from app.core.resealing import Resealed, reseal_all
from app.domain.signing_keys import hmac_secret
from app.ledger import endpoints, service
from app.ledger.resealing import Part
from app.ledger.sealing import Sealer
from tests.conftest import Connect
from tests.ledgers import TENANT, row, rows
from tests.service import duehook

OLD, NEW, LOST = (f"a key that is {word} and has 32 characters" for word in ("old", "new", "lost"))
BEFORE, BOTH, AFTER = Sealer([OLD]), Sealer([NEW, OLD]), Sealer([NEW])
SECRET = hmac_secret(b"a secret that nobody may ever see")
VALUE = "a header's value that nobody may ever see"


@pytest.fixture(autouse=True)
def in_use_since_long(engine: Engine) -> None:
    with engine.begin() as connection:
        service.check_keys(connection, BEFORE.fingerprints)


def an_endpoint(engine: Engine, sealer: Sealer = BEFORE) -> int:
    wanted = Wanted("http://127.0.0.1:9/", ["*"], headers={"x-token": VALUE}, secret=SECRET)
    with engine.begin() as connection:
        return core.create(connection, sealer, TENANT, wanted).endpoint.seq


def rotated(engine: Engine, endpoint: int, sealer: Sealer = BEFORE, overlap: timedelta = timedelta(days=1)) -> str:
    with engine.begin() as connection:
        made = core.rotate(connection, sealer, TENANT, endpoint, overlap)
    assert isinstance(made, core.Rotated)
    return made.secret


def public(endpoint: int) -> str:
    return f"end_{endpoint:x}"


def opened(engine: Engine, sealer: Sealer, endpoint: int) -> tuple[dict[str, str], list[str]]:
    """An endpoint's headers and live secrets, by the keys of `sealer` alone."""
    with engine.begin() as connection:
        (found,) = endpoints.load(connection, [endpoint])
        live = endpoints.secrets(connection, [endpoint])
    return sealer.open_headers(found.headers), [sealer.open(each.sealed) for each in live]


def everything(engine: Engine) -> list[Any]:
    """All that a run could change, byte by byte."""
    with engine.begin() as connection:
        queries = ("SELECT * FROM duehook.endpoints ORDER BY seq", "SELECT * FROM duehook.secrets ORDER BY seq")
        return [tuple(each) for query in queries for each in connection.execute(text(query))]


def fingerprint(engine: Engine) -> str:
    return str(rows(engine, "SELECT key_fingerprint FROM duehook.service")[0])


def never(_: float) -> None:
    raise AssertionError("nobody held anything")


@contextmanager
def just_before(engine: Engine, statement: str, act: Callable[[], object]) -> Iterator[None]:
    """Has something happen once, when this statement is about to be sent."""
    waiting = [act]

    def notice(_c: Any, _cursor: Any, sent: str, *_rest: Any) -> None:
        if f"/* {statement} */" in sent and waiting:
            waiting.pop()()

    listens_for(engine, "before_cursor_execute")(notice)
    yield
    remove(engine, "before_cursor_execute", notice)
    assert not waiting, f"{statement} was never sent"


def test_everything_comes_under_the_first_key_and_the_ledger_follows(engine: Engine) -> None:
    first, second = an_endpoint(engine), an_endpoint(engine)
    newer = rotated(engine, second)
    done = reseal_all(engine, BOTH, never)
    assert done == Resealed({Part.HEADERS: 2, Part.SECRET: 3}, [], clean=True, moved=True)
    assert opened(engine, AFTER, first) == ({"x-token": VALUE}, [SECRET])
    assert opened(engine, AFTER, second) == ({"x-token": VALUE}, [newer, SECRET])
    assert fingerprint(engine) == AFTER.fingerprints[0]
    with engine.begin() as connection, pytest.raises(service.UnfitError):
        service.check_keys(connection, BEFORE.fingerprints)


def test_a_second_run_changes_nothing(engine: Engine) -> None:
    an_endpoint(engine)
    reseal_all(engine, BOTH, never)
    before = everything(engine)
    assert reseal_all(engine, BOTH, never) == Resealed(clean=True)
    assert everything(engine) == before


def test_nobody_who_sends_has_to_read_an_endpoint_again(engine: Engine) -> None:
    endpoint = an_endpoint(engine)
    before = row(engine, "endpoints", "seq", endpoint)
    reseal_all(engine, BOTH, never)
    after = row(engine, "endpoints", "seq", endpoint)
    assert before.pop("headers") != after.pop("headers")
    assert before == after


def test_it_goes_in_bounded_steps_each_of_which_counts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resealing, "MOST", 2)
    made = [an_endpoint(engine) for _ in range(5)]

    def killed() -> None:
        raise KeyboardInterrupt

    with just_before(engine, "sealed.reseal_secret", killed), pytest.raises(KeyboardInterrupt):
        reseal_all(engine, BOTH, never)
    assert fingerprint(engine) == BEFORE.fingerprints[0]
    assert [AFTER.reseal(each) for each in rows(engine, "SELECT headers FROM duehook.endpoints")] == [None] * 5
    done = reseal_all(engine, BOTH, never)
    assert (done.changed, done.moved) == ({Part.HEADERS: 0, Part.SECRET: 5}, True)
    assert [opened(engine, AFTER, each)[1] for each in made] == [[SECRET]] * 5


def test_a_change_that_comes_in_between_is_the_one_that_stays(engine: Engine) -> None:
    endpoint = an_endpoint(engine)

    def patch() -> None:
        with engine.begin() as connection:
            core.change(connection, BEFORE, TENANT, endpoint, {"headers": {"x-token": "newer"}})

    with just_before(engine, "sealed.reseal_headers", patch):
        done = reseal_all(engine, BOTH, lambda _: None)
    assert opened(engine, AFTER, endpoint)[0] == {"x-token": "newer"}
    assert (done.changed[Part.HEADERS], done.moved) == (1, True), "it was sealed under the old key, by an older process"


def test_a_secret_that_changed_in_between_is_the_one_that_stays(engine: Engine) -> None:
    endpoint = an_endpoint(engine)
    other = AFTER.seal(hmac_secret(bytes(32)))

    def restore() -> None:
        with engine.begin() as connection:
            connection.execute(text("UPDATE duehook.secrets SET sealed = :other"), {"other": other})

    with just_before(engine, "sealed.reseal_secret", restore):
        reseal_all(engine, BOTH, lambda _: None)
    assert opened(engine, AFTER, endpoint)[1] == [hmac_secret(bytes(32))]


def test_a_rotation_that_comes_in_between_keeps_its_end_of_the_old_secret(engine: Engine) -> None:
    endpoint = an_endpoint(engine)
    made: list[str] = []
    with just_before(engine, "sealed.reseal_secret", lambda: made.append(rotated(engine, endpoint, BOTH, timedelta()))):
        reseal_all(engine, BOTH, never)
    assert opened(engine, AFTER, endpoint)[1] == made
    assert rows(engine, "SELECT count(*) FROM duehook.secrets WHERE expires_at IS NULL") == [1]


def test_what_a_rotation_holds_is_waited_for_and_nobody_waits_behind_it(engine: Engine, connect: Connect) -> None:
    endpoint, other = an_endpoint(engine), an_endpoint(engine)
    holder = connect()
    holder.execute("SELECT FROM duehook.endpoints WHERE seq = %s FOR UPDATE", [endpoint])
    holder.execute("UPDATE duehook.secrets SET expires_at = now() + interval '1 h' WHERE endpoint = %s", [endpoint])
    rests: list[float] = []

    def commit_then(seconds: float) -> None:
        rests.append(seconds)
        assert opened(engine, AFTER, other) == ({"x-token": VALUE}, [SECRET])
        holder.commit()

    assert reseal_all(engine, BOTH, commit_then).moved
    assert len(rests) == 1
    assert opened(engine, AFTER, endpoint) == ({"x-token": VALUE}, [SECRET])


def test_what_is_held_for_ever_keeps_the_old_key_needed(engine: Engine, connect: Connect) -> None:
    holder = connect()
    holder.execute("SELECT FROM duehook.endpoints WHERE seq = %s FOR UPDATE", [an_endpoint(engine)])
    done = reseal_all(engine, BOTH, lambda _: None)
    assert (done.clean, done.moved, fingerprint(engine)) == (False, False, BEFORE.fingerprints[0])
    holder.rollback()
    assert reseal_all(engine, BOTH, never).moved


def test_who_goes_on_sealing_under_the_old_key_keeps_it_needed(engine: Engine) -> None:
    """Values of a process that was not restarted, in each pass: the last look must find none."""
    an_endpoint(engine)

    @listens_for(engine, "before_cursor_execute")
    def restless(_c: Any, _cursor: Any, sent: str, *_rest: Any) -> None:
        if "/* sealed.reseal_headers */" in sent:
            an_endpoint(engine)

    done = reseal_all(engine, BOTH, lambda _: None)
    assert (done.clean, done.moved, fingerprint(engine)) == (False, False, BEFORE.fingerprints[0])


def test_what_no_key_opens_is_named_and_everything_else_is_done(engine: Engine, database_url: str) -> None:
    lost, fine = an_endpoint(engine, Sealer([LOST])), an_endpoint(engine)

    def run(*options: str) -> tuple[int, str, str]:
        ran = duehook("keys", "reencrypt", *options, database_url=database_url, secrets_key=f"{NEW},{OLD}")
        return ran.returncode, ran.stdout, ran.stderr

    code, out, error = run("--json")
    assert code == 1
    assert json.loads(out) == {
        "headers_resealed": 1,
        "secrets_resealed": 1,
        "key": AFTER.fingerprints[0],
        "key_moved": False,
        "unopened": [{"endpoint_id": public(lost), "part": part} for part in ("headers", "secret")],
    }
    assert error.count("\n") == 1
    assert public(lost) in error
    assert opened(engine, AFTER, fine) == ({"x-token": VALUE}, [SECRET])
    code, out, error = run()
    assert (code, f"{public(lost)}\theaders" in out, f"{public(lost)}\tsecret" in out) == (1, True, True)
    rotated(engine, lost, BOTH, timedelta())
    with engine.begin() as connection:
        core.change(connection, BOTH, TENANT, lost, {"headers": None})
    code, out, error = run("--json")
    assert (code, json.loads(out)["key_moved"], error) == (0, True, "")


def test_what_nobody_will_ever_open_again_is_in_nobody_s_way(engine: Engine) -> None:
    deleted, lost = (an_endpoint(engine, Sealer([LOST])) for _ in range(2))
    with engine.begin() as connection:
        core.delete(connection, TENANT, deleted)
        core.change(connection, BOTH, TENANT, lost, {"headers": None})
        connection.execute(
            text("UPDATE duehook.secrets SET expires_at = duehook.now() WHERE endpoint = :seq"), {"seq": lost}
        )
    assert reseal_all(engine, BOTH, never) == Resealed(clean=True, moved=True)


@pytest.mark.parametrize(
    ("keys", "words"),
    [("", "DUEHOOK_SECRETS_KEY is not set"), (NEW, f"the key with the fingerprint {BEFORE.fingerprints[0]}")],
)
def test_without_the_right_keys_it_touches_nothing(
    engine: Engine, database_url: str, tmp_path: Any, keys: str, words: str
) -> None:
    an_endpoint(engine)
    before = everything(engine)
    ran = duehook("keys", "reencrypt", database_url=database_url, secrets_key=keys, home=tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert words in ran.stderr
    assert everything(engine) == before


def test_the_keys_may_be_a_list_in_the_home(engine: Engine, database_url: str, tmp_path: Any) -> None:
    an_endpoint(engine)
    (tmp_path / "secrets.key").write_text(f"{NEW},{OLD}\n")
    ran = duehook("keys", "reencrypt", database_url=database_url, home=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == [
        *("headers_resealed", "1", "secrets_resealed", "1"),
        *("key", AFTER.fingerprints[0], "key_moved", "True"),
    ]


def test_owners_who_rotate_and_change_all_the_while_have_their_way_and_nobody_blocks_anybody(engine: Engine) -> None:
    """Half of them in processes that seal under the old key still. Nothing is retried here: a deadlock would show."""
    made = [an_endpoint(engine) for _ in range(4)]
    rounds = 25

    def own(endpoint: int) -> list[str]:
        live = [SECRET]
        for number in range(rounds):
            sealer = BEFORE if number % 2 else BOTH
            kept = number % 4
            live = [rotated(engine, endpoint, sealer, timedelta(days=1) if kept else timedelta()), *live[: 5 * kept]]
            with engine.begin() as connection:
                core.change(connection, sealer, TENANT, endpoint, {"headers": {"x-token": str(number)}})
        return live

    with ThreadPoolExecutor(len(made)) as owners:
        owned = [owners.submit(own, endpoint) for endpoint in made]
        while not all(each.done() for each in owned):
            reseal_all(engine, BOTH, lambda _: None)
    assert reseal_all(engine, BOTH, never).clean
    for endpoint, its in zip(made, owned, strict=True):
        assert opened(engine, AFTER, endpoint) == ({"x-token": str(rounds - 1)}, its.result())


def test_a_key_that_is_none_of_ours_stays_the_ledger_s(engine: Engine) -> None:
    """As when another run, with another list, has moved it meanwhile."""
    with engine.begin() as connection:
        assert not service.move_key(connection, Sealer([NEW, LOST]).fingerprints)
    assert fingerprint(engine) == BEFORE.fingerprints[0]


def test_a_run_asks_for_a_stretch_at_a_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resealing, "MOST", 2)
    for _ in range(5):
        an_endpoint(engine)
    sizes: list[int] = []

    def note(_c: Any, _cursor: Any, sent: str, parameters: Any, *_rest: Any) -> None:
        if "/* sealed.reseal_" in sent:
            sizes.append(len(next(each for each in parameters.values() if isinstance(each, Sequence))))

    listens_for(engine, "before_cursor_execute")(note)
    reseal_all(engine, BOTH, never)
    assert sizes == [2, 2, 1, 2, 2, 1]
