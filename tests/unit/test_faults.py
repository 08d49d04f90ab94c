"""An exception is told by its kinds and places, never by its words; so is whatever reaches a log."""

import json
import subprocess
import sys

import psycopg
import pytest

from app.domain.faults import kinds, told

SECRET = "hunter2"


class RefusedError(psycopg.errors.CheckViolation):
    """As PostgreSQL refuses a row: the words quote all of it."""

    @property
    def diag(self):  # type: ignore[no-untyped-def]
        return type("Diagnostic", (), {"constraint_name": "events_check"})()


def fall() -> None:
    try:
        raise RefusedError(f"DETAIL: Failing row contains ({SECRET}).")
    except RefusedError as error:
        raise ValueError(SECRET) from error


def caught() -> ValueError:
    with pytest.raises(ValueError, match=SECRET) as fallen:
        fall()
    return fallen.value


def test_kinds_and_places_are_told_and_no_word() -> None:
    error = caught()
    error.__cause__.__context__ = error  # type: ignore[union-attr]  # a chain that is a ring ends all the same
    assert kinds(error) == "ValueError < RefusedError 23514 events_check"
    first, *places = told(error).splitlines()
    assert first == "ValueError"
    assert places[1].startswith("  fall (") and "test_faults.py:" in places[1]
    assert "RefusedError 23514 events_check" in places
    assert SECRET not in told(error)


def replaced() -> None:
    try:
        fall()
    except ValueError:
        raise KeyError(SECRET) from None


def followed() -> None:
    try:
        fall()
    except ValueError:
        raise KeyError(SECRET)  # noqa: B904 - as it happens


def test_what_came_before_is_told_unless_it_was_set_aside() -> None:
    with pytest.raises(KeyError) as alone:
        replaced()
    with pytest.raises(KeyError) as last:
        followed()
    assert kinds(alone.value) == "KeyError"
    assert kinds(last.value) == "KeyError < ValueError < RefusedError 23514 events_check"


LOGGED = """
import asyncio, gc, logging, sys, threading
import structlog
from app.logs import configure
from app.settings import Settings

configure(Settings(log_level="debug"))

def fall(*_):
    raise ValueError("hun" + "ter2")

async def forgotten():
    asyncio.get_running_loop().create_task(fall_later())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()

async def fall_later():
    fall()

for log in (structlog.get_logger("ours"), logging.getLogger("theirs")):
    try:
        fall()
    except ValueError:
        log.exception("failed")
try:
    fall()
except ValueError as error:
    structlog.get_logger("ours").error("failed", exc_info=error)
structlog.get_logger("ours").error("nothing", exc_info=True)
for target in (fall, sys.exit):
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
asyncio.run(forgotten())
fall()
"""


def test_no_way_into_a_log_takes_an_exception_s_words_along() -> None:
    ran = subprocess.run([sys.executable, "-c", LOGGED], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert SECRET not in ran.stderr
    lines = [json.loads(line) for line in ran.stderr.splitlines() if '"asyncio"' not in line or "Task" in line]
    assert [line["event"] for line in lines] == [
        *("failed", "failed", "failed", "nothing", "uncaught", "Task exception was never retrieved", "uncaught")
    ]
    for line in lines:
        assert ("exception" in line) == (line["event"] != "nothing")
        assert line.get("exception", "ValueError\n  fall (").startswith("ValueError\n")
