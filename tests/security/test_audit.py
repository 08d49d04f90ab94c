"""What `make audit` makes of what pip-audit says. Nobody is asked here: a test must not hang on somebody's service."""

import json
import sys
from datetime import UTC, date, datetime
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PINS = ROOT / "constraints.txt"
FINE = {"name": "attrs", "version": "26.1.0", "vulns": []}
FLAW = {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1", "GHSA-aaaa"], "fix_versions": ["2.0"], "description": "…"}
FLAWED = {"name": "jinja2", "version": "1.0", "vulns": [FLAW]}
UNKNOWN = {"name": "alembic", "skip_reason": "not found: alembic (1.0)"}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def saying(*dependencies: dict[str, Any], code: int = 0) -> list[str]:
    """A program that says it as pip-audit does."""
    report = json.dumps({"dependencies": dependencies, "fixes": []})
    return [sys.executable, "-c", f"print({report!r}); raise SystemExit({code})"]


def test_nothing_known_is_fine(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(PINS, saying(FINE)) == 0
    assert capsys.readouterr().out == "No pinned dependency has a known vulnerability.\n"


def test_a_vulnerability_fails_and_says_what_to_raise(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(PINS, saying(FINE, FLAWED, UNKNOWN, code=1)) == 1, "although somebody else is not known"
    assert "jinja2 1.0 has PYSEC-2026-1 (fixed in: 2.0)\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "tool",
    [
        saying(FINE, UNKNOWN),
        [sys.executable, "-c", "import sys; sys.exit('connection refused')"],
        [sys.executable, "-c", "print('<html>')"],
    ],
    ids=["not known", "refused", "no JSON"],
)
def test_a_service_that_knows_nothing_stops_nobody_and_is_told_of(
    audit: ModuleType, capsys: pytest.CaptureFixture[str], tool: list[str]
) -> None:
    assert audit.main(PINS, tool) == 0
    said = capsys.readouterr()
    assert "THE DEPENDENCIES WERE NOT ALL AUDITED" in said.err and not said.out, "it never says that all is well"


@pytest.mark.parametrize("id_", ["PYSEC-2026-1", "CVE-2026-1", "GHSA-aaaa"])
def test_one_that_is_excused_fails_again_after_its_day(audit: ModuleType, id_: str) -> None:
    text = f"# why\n\n{id_} 2026-12-31 we never parse what strangers send\n"
    report = {"dependencies": [FLAWED]}
    assert audit.flaws(report, audit.accepted(text, date(2026, 12, 31))) == []
    assert len(audit.flaws(report, audit.accepted(text, date(2027, 1, 1)))) == 1


@pytest.mark.parametrize(
    "line", ["CVE-2026-1", "CVE-2026-1 2026-12-31", "CVE-2026-1 soon because", "CVE 2026-12-31 meh"]
)
def test_an_excuse_without_a_day_or_a_reason_is_none(audit: ModuleType, line: str) -> None:
    with pytest.raises(ValueError, match="write"):
        audit.accepted(line, date(2026, 1, 1))


def test_the_excuses_of_this_repository_are_in_order_and_ci_asks(audit: ModuleType) -> None:
    audit.accepted(audit.ACCEPTED.read_text(), datetime.now(UTC).date())
    assert "make audit" in (ROOT / ".ci" / "run").read_text()
    assert ".ci/audit.py" in (ROOT / "Makefile").read_text()


def test_every_dependency_is_pinned_exactly() -> None:
    lines = [line for line in PINS.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) > 50
    assert [line for line in lines if "==" not in line] == []
