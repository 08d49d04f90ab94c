"""The report: as JSON, at terminals wide and narrow, and as a page that needs nothing and lets nothing in."""

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from app.eval.page import page
from app.eval.printing import print_report
from app.eval.report import Report
from app.eval.thresholds import FIGURES
from tests.eval.reports import FAULT, REPORT, failed

EVIL = "<script>alert('x')</script>"
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Tags in order, with what they hold; raises when one is not closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def printed(report: Report, width: int) -> str:
    out = io.StringIO()
    print_report(report, Console(file=out, width=width, force_terminal=True, color_system=None, highlight=False))
    return out.getvalue()


def test_json_says_whether_it_is_right_and_why_not() -> None:
    fine, bad = json.loads(REPORT.to_json()), json.loads(failed().to_json())
    assert (fine["right"], fine["problems"]) == (True, [])
    assert bad["right"] is False
    assert bad["problems"] == ["timeout-after-acceptance: recovery_seconds is 2.5, and may be 2 at most."]
    assert list(fine["faults"][0]["figures"]) == list(FIGURES)
    assert fine["faults"][0]["destinations"]["naive"]["duplicate_effects"] == 13
    assert fine["not_run"] == [
        {"name": "poison-event", "title": "an event that kills its sender", "reason": "it would hurt others"}
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"hits": 0}, "timeout-after-acceptance came about, and hit nothing."),
        ({"missed": "nobody came"}, "timeout-after-acceptance did not come about: nobody came."),
        ({"settled": False}, "timeout-after-acceptance: something was still open after 6 s."),
    ],
)
def test_a_fault_that_proves_nothing_is_a_problem(change: dict[str, object], problem: str) -> None:
    assert replace(REPORT, faults=[replace(FAULT, **change)]).problems() == [problem]  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_it_fits_terminals_of_every_width(width: int) -> None:
    said = printed(failed(), width)
    assert max(map(len, said.splitlines())) <= width
    words = " ".join(said.split())
    assert "✗ timeout-after-acceptance: recovery_seconds is 2.5, and may be 2 at most." in words
    assert "Not run: poison-event; it would hurt others." in words


def test_what_looks_like_markup_of_the_terminal_is_text() -> None:
    report = replace(REPORT, installation="[red]x[/red]", faults=[replace(FAULT, name="[bold]y")])
    assert "[red]x[/red]" in printed(report, 120)
    assert "[bold]y" in printed(report, 120)


def test_the_verdict_tells_how_many_were_left_out() -> None:
    assert "✓ 1 faults in 6 s, 1 not run: every figure is within its threshold." in printed(REPORT, 120)


def test_the_page_has_all_of_it_and_needs_nothing_from_elsewhere() -> None:
    text = page(failed())
    read = Page(text)
    assert read.count("script") == read.count("link") == read.count("img") == read.count("iframe") == 0
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in text and "@import" not in text
    assert read.count("svg") == 1
    assert read.count("table") == read.count("caption") == 3
    words = " ".join(" ".join(read.words).split())
    assert "timeout-after-acceptance: recovery_seconds is 2.5, and may be 2 at most." in words
    assert "it would hurt others" in words and "13 events had their effect." in words
    for figure, meaning in FIGURES.items():
        if figure != list(FIGURES)[-1]:
            assert figure in words and meaning in words


def test_the_page_can_be_read_by_everybody_everywhere() -> None:
    text = page(REPORT)
    read = Page(text)
    assert "prefers-color-scheme: dark" in text and "@media print" in text
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in read.tags
    assert ("html", {"lang": "en"}) in read.tags
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in read.tags if tag == "th")
    ids = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [str(attributes["href"])[1:] for tag, attributes in read.tags if tag == "a"]
    labels = [each for _, attributes in read.tags for each in (attributes.get("aria-labelledby") or "").split()]
    assert targets and set(targets) <= set(ids) and set(labels) <= set(ids)


def test_names_that_look_like_markup_are_text_on_the_page() -> None:
    fault = replace(
        FAULT,
        name=EVIL,
        title=EVIL,
        happened=[EVIL],
        missed=EVIL,
        destinations={EVIL: replace(FAULT.destinations["careful"], answers={EVIL: 1}, ends={EVIL: 1})},
    )
    not_run = [replace(REPORT.not_run[0], name=EVIL, reason=EVIL)]
    text = page(replace(REPORT, installation=EVIL, tenant=EVIL, faults=[fault], not_run=not_run))
    assert "<script" not in text
    read = Page(text)
    assert read.count("script") == 0
    assert sum(EVIL in each for each in read.words) >= 10
