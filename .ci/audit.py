"""Whether a pinned dependency has a known vulnerability: `make audit`.

Asks the package index that pip is set up for, through pip-audit, in an environment of its own: what audits the
dependencies is none of them. A vulnerability fails; one that is named in .ci/vulnerabilities.txt, with a reason and the
day by which somebody must look again, does not until that day. A service that can't be asked fails nobody's build, and
is told of loudly.
"""

import json
import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
ACCEPTED = ROOT / ".ci" / "vulnerabilities.txt"
TOOL = "pip-audit>=2.9,<3"
PATIENCE = 300  # seconds


Report = dict[str, list[dict[str, Any]]]


class OutageError(Exception):
    """Nobody could be asked; the message says why."""


def accepted(text: str, today: date) -> set[str]:
    """The ids that are excused today. Each line is `ID DATE reason`; one that is not so raises ValueError."""
    found = set()
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        written = re.fullmatch(r"(\S+) (\d{4}-\d{2}-\d{2}) (\S.{9,})", line)
        if written is None:
            raise ValueError(f"{ACCEPTED.name}: write {line!r} as an id, a date and a reason of ten characters or more")
        if today <= date.fromisoformat(written[2]):
            found.add(written[1])
    return found


def flaws(report: Report, excused: set[str]) -> list[str]:
    """What pip-audit found and nobody has excused, a sentence each."""
    return [
        f"{package['name']} {package['version']} has {each['id']}"
        f" (fixed in: {', '.join(each['fix_versions']) or 'none yet'})"
        for package in report["dependencies"]
        for each in package.get("vulns", ())
        if not excused & {each["id"], *each["aliases"]}
    ]


def unseen(report: Report) -> list[str]:
    """The packages that the service did not know, which pip-audit itself takes for fine."""
    return [package["name"] for package in report["dependencies"] if "skip_reason" in package]


def audit(pins: Path, tool: Sequence[str]) -> Report:
    """pip-audit's report about these pins. Raises `OutageError` when it has none."""
    command = [*tool, "-r", str(pins), "--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        report: Report = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise OutageError(f"no answer within {PATIENCE} s") from None
    except ValueError:
        raise OutageError((done.stderr.strip().splitlines() or ["it said nothing"])[-1]) from None
    return report


def installed() -> list[str]:
    """The command of pip-audit, installed on first use. Raises `OutageError` when it can't be."""
    folder = ROOT / ".cache" / "audit"
    tool = folder / "bin" / "pip-audit"
    if not tool.exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check", TOOL]
        if subprocess.run(pip, check=False).returncode != 0:
            raise OutageError("pip-audit can't be installed")
    return [str(tool)]


def _shout(why: str) -> None:
    line = "!" * 100
    print(f"{line}\nTHE DEPENDENCIES WERE NOT ALL AUDITED: {why}\n{line}", file=sys.stderr)


def main(pins: Path, tool: Sequence[str] = ()) -> int:
    """The exit code."""
    try:
        excused = accepted(ACCEPTED.read_text(encoding="utf-8"), datetime.now(UTC).date())
        report = audit(pins, tool or installed())
    except OutageError as outage:
        _shout(str(outage))
        return 0
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    found, missing = flaws(report, excused), unseen(report)
    if missing:
        _shout(f"the service does not know {len(missing)} of {len(report['dependencies'])}, {missing[0]} for one")
    for each in found:
        print(each, file=sys.stderr)
    if not found and not missing:
        print("No pinned dependency has a known vulnerability.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(ROOT / "constraints.txt"))
