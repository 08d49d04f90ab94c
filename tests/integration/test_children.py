"""Children of `duehook up`, with small programs in the place of ours: starting, readiness, draining, the leash."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from app.local.errors import LocalServiceError
from app.local.up.child import Child
from app.local.up.drain import drain
from app.local.up.logs import bound
from app.local.up.readiness import wait_until_ready
from app.local.up.roles import Role
from tests.waiting import wait_until

READY = """
import os, pathlib, signal, sys, time
say = lambda: pathlib.Path(os.environ["DUEHOOK_READY_FILE"]).write_text(str(os.getpid()))
"""
OBEDIENT = (
    READY + "signal.signal(signal.SIGTERM, lambda *_: (print('drained', flush=True), sys.exit()));say();time.sleep(60)"
)
STUBBORN = READY + "signal.signal(signal.SIGTERM, signal.SIG_IGN);say();time.sleep(60)"
SILENT = READY + "time.sleep(60)"
FAILING = "print('it begins'); raise SystemExit('the disk is full')"

Make = Callable[..., Child]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes and starts children of a home; kills them at the end."""
    made: list[Child] = []
    for folder in ("logs", "run"):
        (tmp_path / folder).mkdir()

    def make_one(code: str, role: str = "relay", *, patience: float = 10.0, place: int = 0) -> Child:
        command = [sys.executable, "-c", code]
        child = Child(Role(role, command, patience), place, home=tmp_path, environment={"PATH": "/usr/bin:/bin"})
        made.append(child)
        child.start()
        return child

    yield make_one
    for child in made:
        child.kill()


def ready(*children: Child, deadline: float = 20.0, probes: dict[str, str] | None = None) -> bool:
    return wait_until_ready(children, probes or {}, stopped=lambda: False, deadline=deadline)


def test_a_child_is_ready_when_it_says_so_itself(make: Make) -> None:
    assert ready(make(OBEDIENT), make(OBEDIENT, place=1))


def test_a_ready_file_of_an_earlier_start_does_not_count(make: Make) -> None:
    child = make(OBEDIENT)
    assert ready(child)
    child.kill()
    assert not child.ready
    child.start()
    assert not child.ready
    assert ready(child)


def test_a_child_that_ends_while_starting_is_named_with_its_last_word(make: Make) -> None:
    with pytest.raises(LocalServiceError) as failed:
        ready(make(FAILING, "beat"))
    assert str(failed.value).startswith("beat exited with code 1 while starting: the disk is full (more in ")


def test_a_child_that_needs_too_long_is_named(make: Make) -> None:
    prompt = make(OBEDIENT)
    assert ready(prompt)
    with pytest.raises(LocalServiceError, match=r"Not ready after 0.2 s: beat; see .*beat.log"):
        ready(prompt, make(SILENT, "beat"), deadline=0.2)


def test_a_server_is_ready_when_it_answers_200(make: Make) -> None:
    answers = iter([503, 503, 200])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(next(answers))
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert ready(make(SILENT, "api"), probes={"api": f"http://127.0.0.1:{server.server_port}/readyz"})
        server.shutdown()
    assert not list(answers)


def test_waiting_ends_when_it_is_stopped(make: Make) -> None:
    assert not wait_until_ready([make(SILENT)], {}, stopped=lambda: True)


def test_stages_drain_one_after_the_other(make: Make) -> None:
    said: list[str] = []
    relay, worker = make(OBEDIENT, "relay"), make(OBEDIENT, "worker")
    assert ready(relay, worker)
    drain([relay], [("relay",), ("worker",)], say=said.append, hurried=lambda: False)
    assert (relay.running, worker.running) == (False, True)
    drain([relay, worker], [("relay",), ("worker",)], say=said.append, hurried=lambda: False)
    assert not worker.running
    assert [relay.last_word(), worker.last_word()] == ["drained", "drained"]
    assert said == []


def test_who_takes_longer_than_its_patience_is_killed_and_that_is_said(make: Make) -> None:
    said: list[str] = []
    child = make(STUBBORN, patience=0.2)
    assert ready(child)
    drain([child], [("relay",)], say=said.append, hurried=lambda: False)
    assert child.how_it_ended() == "was ended by SIGKILL"
    assert said == [f"Killed, for they did not end in time: relay (pid {child.pid})."]


def test_a_second_signal_kills_at_once_and_that_is_one_sentence(make: Make) -> None:
    said: list[str] = []
    api, worker, scan = (make(STUBBORN, role) for role in ("api", "worker-delivery", "scan"))
    assert ready(api, worker, scan)
    drain([api, worker, scan], [("api",), ("worker-delivery", "scan")], say=said.append, hurried=lambda: True)
    assert not any(child.running for child in (api, worker, scan))
    assert said == [
        f"Killed at once, as asked: api (pid {api.pid}), worker-delivery (pid {worker.pid}), scan (pid {scan.pid}); "
        "what workers and scan had in the air is sent again when its lease ends."
    ]


def test_only_workers_and_scan_have_leases(make: Make) -> None:
    said: list[str] = []
    child = make(STUBBORN, "api")
    assert ready(child)
    drain([child], [("api",)], say=said.append, hurried=lambda: True)
    assert said == [f"Killed at once, as asked: api (pid {child.pid})."]


def test_what_a_long_drain_waits_for_is_said_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.local.up.drain.LONG", 0.1)
    said: list[str] = []
    quick, slow = make(OBEDIENT, "scan"), make(STUBBORN, "worker-delivery", patience=1)
    assert ready(quick, slow)
    drain([quick, slow], [("scan", "worker-delivery")], say=said.append, hurried=lambda: False)
    waiting, killed = said
    assert waiting.startswith("Waiting for ") and waiting.endswith(
        f"worker-delivery (pid {slow.pid}) to end what is in the air."
    )
    assert killed.startswith(f"Killed, for they did not end in time: worker-delivery (pid {slow.pid}); what workers")


def test_a_kill_takes_what_the_child_has_started_along(make: Make) -> None:
    code = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    child = make(code)
    grandchild = int(wait_until(lambda: child.last_word().isdigit() and child.last_word(), what="it said its pid"))
    child.kill()
    wait_until(lambda: is_gone(grandchild), what="the grandchild was gone")


def test_a_child_does_not_outlive_its_supervisor(tmp_path: Path) -> None:
    owner = f"""
import sys, time
from pathlib import Path
from app.local.up.child import Child
from app.local.up.roles import Role
home = Path({str(tmp_path)!r})
for folder in ("logs", "run"):
    (home / folder).mkdir()
child = Child(Role("relay", [sys.executable, "-c", "import signal, time;"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN);time.sleep(60)"]), 0, home=home, environment={{}})
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: is_gone(pid), what="the child was gone")


def test_a_long_log_moves_aside_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "relay.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"old\n" * 100)
        bound(log, 400)
        assert log.stat().st_size == 400
        bound(log, 399)
        writer.write(b"new\n")
    assert log.read_bytes() == b"new\n"
    assert (tmp_path / "relay.log.1").read_bytes() == b"old\n" * 100


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
