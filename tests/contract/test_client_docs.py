"""What docs/python-client.md shows is what happens: every snippet is run, in order, on the API."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import app.client
from app.core.jobs import advance
from tests.clock import Clock
from tests.contract.served import Api
from tests.ledgers import rows

PAGE = Path(app.client.__file__).parents[2] / "docs" / "python-client.md"
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@contextmanager
def working(api: Api) -> Iterator[None]:
    """Somebody who does the jobs."""
    engine, stop = api.runtime.engine, threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            advance(engine, rows(engine, "SELECT seq FROM duehook.jobs WHERE status IN ('queued', 'running')"))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_every_snippet_runs(
    api: Api, tenant: str, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DUEHOOK_API_URL", api.url)
    monkeypatch.setenv("DUEHOOK_API_KEY", api.key(tenant))
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: (sleep(seconds), clock.advance(seconds=seconds)))
    page = PAGE.read_text(encoding="utf-8")
    snippets = SNIPPET.findall(page)
    assert len(snippets) == page.count("```python") >= 10
    names: dict[str, object] = {}
    with working(api):
        for snippet in snippets:
            at = page[: page.index(snippet)].count("\n")
            exec(compile("\n" * at + snippet, PAGE, "exec"), names)  # noqa: S102  the page's own lines, by their numbers
    said = capsys.readouterr().out
    assert "/type a type is words of letters" in said
    assert re.search(r"^rsv_\w+ is expired and can't become confirmed$", said, re.MULTILINE), "why the confirm lost"


def test_every_error_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    errors = [name for name in app.client.__all__ if name.endswith("Error")]
    assert [name for name in errors if f"`{name}`" not in page] == []
