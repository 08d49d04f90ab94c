"""The threat model names what stands against each threat; what it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in (ROOT / "docs" / "security.md").read_text().splitlines()
    if re.match(r"\| T\d", line)
]
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
}


def test_every_threat_has_a_number_an_answer_and_tests_that_exist() -> None:
    assert [row[0] for row in ROWS] == [f"T{number:02}" for number in range(1, len(ROWS) + 1)]
    assert len(ROWS) >= 25
    for row in ROWS:
        number, threat, answer, tests, *_ = row
        assert len(row) == 5 and threat and answer, number
        named = re.findall(r"`(test_\w+)`", tests)
        assert named, f"{number} names no test"
        assert set(named) <= TESTS, f"{number} names {set(named) - TESTS}, which does not exist"


def test_what_remains_names_only_tests_that_exist_too() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "security.md").read_text()))
    assert named <= TESTS, named - TESTS
