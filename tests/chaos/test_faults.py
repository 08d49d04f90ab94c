"""A fault is believed to have hit something only where that shows; one that did not is named."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from tests.chaos import faults
from tests.chaos.faults import Happened, Seen
from tests.chaos.fleet import ReceiverSlot
from tests.chaos.judges import Verdict
from tests.chaos.plan import Fault, Plan, Receiver
from tests.chaos.run import Ended, report
from tests.proxy import Mode, Network
from tests.waiting import wait_until


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ReceiverSlot]:
    """One that answers, through its proxy."""
    with Network() as network:
        slot = ReceiverSlot(Receiver("quick", "acme"), tmp_path, network)
        wait_until(lambda: status_of(slot) == 401, deadline=30, what="the receiver answers")
        yield slot
        slot.kill()


def status_of(slot: ReceiverSlot) -> int | None:
    """What it answers to a request without a signature; None when nothing comes back."""
    try:
        return httpx.post(slot.url, content=b"{}", timeout=2).status_code
    except httpx.TransportError:
        return None


@pytest.mark.parametrize("mode", [Mode.CUT, Mode.SLOW, Mode.BLACK_HOLE, Mode.DEAF, Mode.CUT_BEFORE_ANSWER])
def test_a_broken_way_counts_whom_it_hit(receiver: ReceiverSlot, mode: Mode) -> None:
    status_of(receiver)
    before = receiver.proxy.hits
    assert before == 0
    receiver.proxy.set(mode)
    status_of(receiver)
    assert receiver.proxy.hits > before
    receiver.proxy.set(Mode.PASS)
    receiver.proxy.cut()


def test_a_receiver_tells_how_many_it_has_answered_like_this(receiver: ReceiverSlot) -> None:
    receiver.tell("fail", 60)
    wait_until(lambda: status_of(receiver) == 500, deadline=10, what="it fails")
    assert receiver.answered(0.0, "failed") == 1
    assert not receiver.answered(0.0, "throttled")
    assert not receiver.answered(float("inf"), "failed")


def test_a_receiver_that_is_dead_is_not_killed_again(receiver: ReceiverSlot) -> None:
    assert receiver.kill()
    assert not receiver.kill()


def test_a_frozen_process_is_seen_to_stand_still() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    seen, seen_of_nobody = Seen(), Seen()
    with faults.stopped(sleeper.pid, seen):
        wait_until(lambda: faults.stands(sleeper.pid), deadline=10, what="it stands still")
    assert seen.total() == 1
    wait_until(lambda: not faults.stands(sleeper.pid), deadline=10, what="it goes on")
    sleeper.kill()
    sleeper.wait()
    with faults.stopped(sleeper.pid, seen_of_nobody):
        pass
    assert not seen_of_nobody.total()


def test_a_broker_that_refuses_is_seen_to_by_whom_it_refused(broker_url: str) -> None:
    nobody, somebody = Seen(), Seen()
    with redis.Redis.from_url(broker_url) as broker:
        broker.config_set("maxmemory", 1)
        with faults.refusing(broker, "OOM", nobody):
            broker.ping()
        with faults.refusing(broker, "OOM", somebody), pytest.raises(redis.OutOfMemoryError):
            broker.set("a", "b")
        broker.config_set("maxmemory", 0)
    assert (nobody.total(), somebody.total()) == (0, 1)


def test_a_run_names_the_faults_that_hit_nothing() -> None:
    happened = [
        Happened(Fault(number, "killed", target, 1.0, 0.0), 0.0, 1.0, 0, Seen(died=died))
        for number, target, died in ((0, "relay", 1), (1, "beat", 0))
    ]
    said = report(Ended(Plan(1, 10, 2, 1.0), happened, [], Verdict(), 1.0, {}, "a machine"))
    assert "1 of 2 faults were seen to hit something; not 2 killed beat" in said
