"""Whether a worker is at its queues, as its consumer's loop sees it, and what its signals do."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from celery.bootsteps import CLOSE, RUN
from celery.worker import state

from app import settings as settings_of
from workers.lifecycle import Attendance, Stops


def consumer(state: int, **parts: object) -> SimpleNamespace:
    return SimpleNamespace(blueprint=SimpleNamespace(state=state), call_soon=lambda callback: callback(), **parts)


def test_a_word_that_comes_while_the_worker_stops_changes_nothing() -> None:
    """By then its consumer is half gone."""
    attendance = Attendance(settings_of.load(), ["delivery"])
    attendance.arrive(consumer(CLOSE, task_consumer=None))
    attendance.hear("the clock is off")
    attendance.hear(None)


def test_a_ready_file_that_can_t_be_written_is_not_taken_for_a_lost_connection(tmp_path: Path) -> None:
    added: list[str] = []
    attendance = Attendance(settings_of.load(ready_file=tmp_path / "gone" / "worker.ready"), ["delivery"])
    attendance.arrive(
        consumer(
            RUN, task_consumer=SimpleNamespace(consuming_from=lambda lane: lane in added), add_task_queue=added.append
        )
    )
    attendance.hear(None)
    assert added == ["delivery"]


def test_ctrl_c_stops_warm_then_cold_then_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for flag in ("should_stop", "should_terminate"):
        monkeypatch.setattr(state, flag, None)
    done: list[object] = []
    monkeypatch.setattr("workers.lifecycle.os._exit", done.append)
    stops = Stops(lambda: done.append("cut"))
    stops._interrupted()
    assert (state.should_stop, state.should_terminate, done) == (0, None, [])
    stops._interrupted()
    assert (state.should_stop, state.should_terminate, done) == (0, 1, ["cut"])
    stops._interrupted()
    assert done[1] == 1
