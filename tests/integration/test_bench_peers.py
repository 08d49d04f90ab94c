"""The benchmark beside peers, as small as it gets: whoever is installed sends everything once, and nothing is left."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from app.cli.main import main
from app.domain.signing_keys import hmac_secret
from app.local.errors import LocalServiceError
from bench.machine import Machine
from bench.peers.contestants import contestants
from bench.peers.main import names
from bench.peers.peer import NodePeer
from bench.peers.plan import QUICK, Plan
from bench.peers.printing import print_report
from bench.peers.program import Producer, Program
from bench.peers.report import Report, Result, comparison
from bench.peers.turn import Figures
from tests.processes import ROOT
from tests.waiting import wait_until

RUN_PEERS = [sys.executable, "-m", "app.cli.main", "bench", "peers", "--quick", "--json", "-"]
LACKING = {each.name: each.lacking for each in contestants()}
FAMILY = "import subprocess, sys; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); child.wait()"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("peers")
    ran = subprocess.run(
        RUN_PEERS, cwd=ROOT, env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True, timeout=280
    )
    assert ran.returncode == 0, ran.stderr
    assert list(folder.iterdir()) == []
    assert _running_for(folder) == []
    return json.loads(ran.stdout)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["duehook", *names()])
def test_a_quick_run_finds_everything_sent_exactly_once(report: Any, name: str) -> None:
    if LACKING[name]:
        pytest.skip(f"there is no {LACKING[name]}")
    (result,) = (each for each in report["results"] if each["name"] == name)
    (measured,) = result["rounds"]
    assert measured == result["median"]
    assert measured["deliveries"] > 0
    assert (measured["sent"], measured["missing"], measured["repeated"]) == (measured["deliveries"], 0, 0)
    assert measured["per_second"] > 0
    assert measured["sending"] > 0
    assert {"workers", "producer", "postgres", "redis", "sink"} <= set(measured["cpu"])
    assert result["versions"]


@pytest.mark.slow
def test_a_quick_run_says_what_it_ran_on(report: Any) -> None:
    assert "fsync on, synchronous_commit on" in report["versions"]["postgres"]
    assert "appendonly yes, appendfsync everysec" in report["versions"]["redis"]
    assert report["results"][0]["name"] == report["order"][0][0] == "duehook"
    assert len(report["left_out"]) == len({what for what in LACKING.values() if what})


def test_a_program_is_held_and_ended_with_what_it_has_started(tmp_path: Path) -> None:
    log = tmp_path / "family.log"
    program = Program([sys.executable, "-c", FAMILY], log=log, environment=dict(os.environ))
    try:
        wait_until(lambda: log.read_text().strip())
        family = [program.pid, int(log.read_text())]
        program.hold()
        wait_until(lambda: [_state(pid) for pid in family] == ["T", "T"])
        program.release()
        wait_until(lambda: "T" not in [_state(pid) for pid in family])
    finally:
        program.end(patience=0.1)
    wait_until(lambda: all(_state(pid) in ("", "Z") for pid in family))


def test_a_producer_that_fails_is_quoted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such queue')"]
    producer = Producer(command, log=tmp_path / "bullmq-producer.log", environment=dict(os.environ))
    with pytest.raises(LocalServiceError, match=r"bullmq-producer did not say 'ready'.*\n.*no such queue"):
        producer.wait_until_ready()
    producer.end()


def test_a_request_of_a_peer_in_node_is_signed_as_standard_webhooks_say(tmp_path: Path) -> None:
    peer = next(each for each in contestants() if isinstance(each, NodePeer))
    if peer.lacking:
        pytest.skip(f"there is no {peer.lacking}")
    secret = hmac_secret(b"s" * 32)
    endpoints = tmp_path / "endpoints.json"
    endpoints.write_text(json.dumps([{"url": "http://127.0.0.1/hooks", "secret": secret}]))
    (tmp_path / "sign.mjs").write_text(
        'import { jobs, signed } from "./webhook.mjs";\nconsole.log(JSON.stringify(signed(jobs("evt_1_", 2)[1])));\n'
    )
    command = [*map(str, peer.program(tmp_path, "sign.mjs"))]
    ran = subprocess.run(command, env={"BENCH_ENDPOINTS": str(endpoints)}, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 0, ran.stderr
    request = json.loads(ran.stdout)
    assert len(request["body"].encode()) == 1024
    assert request["headers"]["webhook-id"] == "evt_1_1"
    Webhook(secret).verify(request["body"], request["headers"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "sidekiq"], f"sidekiq is none of {', '.join(names())}."),
        (["--plot", "peers.txt"], "peers.txt should end in .png, .svg, .pdf."),
    ],
    ids=["a peer that is none", "a plot of no known kind"],
)
def test_wrong_use_is_one_sentence(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["duehook", "bench", "peers", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (2, f"duehook: {sentence}\n")


def test_only_what_the_product_did_wrong_is_a_problem() -> None:
    assert list(a_report().problems()) == []
    assert list(a_report(missing=2).problems()) == ["Round 1: duehook has 2 missing, 0 repeated."]


def test_a_report_is_printed_with_what_each_costs_against_the_product(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(a_report())
    shown = capsys.readouterr().out
    assert "Fast Queue" in shown and "0.400" in shown and "0.80" in shown
    assert "2.00" in shown
    assert "Others left out for lack of a reason." in shown


def test_a_report_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="an extra: bench")
    from bench.peers.plot import draw

    for suffix in ("png", "svg"):
        draw(a_report(), tmp_path / f"peers.{suffix}")
        assert (tmp_path / f"peers.{suffix}").stat().st_size > 5_000


def a_report(*, missing: int = 0) -> Report:
    """Of a run that nobody made."""
    ours = _figures(sending=0.5, per_second=4_000.0, missing=missing)
    theirs = _figures(sending=0.4, per_second=2_000.0, missing=5)
    results = [
        Result(name, title, {name: "1.0"}, each, comparison([ours], [each]), [each])
        for name, title, each in (("duehook", "duehook", ours), ("fast", "Fast Queue", theirs))
    ]
    machine = Machine(2, "a processor", 8.0, "6.1", 0.1)
    versions = {"python": "3.11", "postgres": "17", "redis": "Valkey 9", "celery": "5.7"}
    left_out = ["Others left out for lack of a reason."]
    return Report("duehook bench peers", Plan(rounds=1), machine, versions, [["duehook", "fast"]], left_out, results)


def _figures(*, sending: float, per_second: float, missing: int) -> Figures:
    cpu = {"workers": sending, "postgres": 0.0, "redis": 0.0, "producer": 0.0, "sink": 0.1}
    return Figures(QUICK.deliveries, 200 - missing, 9_000.0, per_second, 0.1, sending, cpu, 0.0, missing, 0)


def _running_for(folder: Path) -> list[int]:
    return [pid for pid in _pids() if str(folder) in _environment_of(pid)]


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _environment_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:  # ended meanwhile
        return ""


def _state(pid: int) -> str:
    """As the kernel abbreviates it; nothing once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
