"""One mutant at a time: a copy of the tree without the guard, the tests named for it, and what became of them."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

from tests.mutants.mutant import Mutant, NoLongerAppliesError

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("app", "workers", "outbox_relay", "bench", "examples", "docs", "tests")
FILES = ("pyproject.toml", "constraints.txt", "docker-compose.yml", "Dockerfile", "Makefile", "README.md")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "node_modules", ".duehook", ".hypothesis", ".pytest_cache", "*.log")
EACH = 90  # seconds that one test may take: what a mutant makes hang has noticed it
WHOLE = 600.0  # seconds for all tests of one mutant


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    BROKEN = "broken"  # nothing was tested: it doesn't apply, or the copy doesn't start


@dataclass(frozen=True, slots=True)
class Result:
    """How a mutant fared; `test` is the one that died, or what broke it."""

    mutant: Mutant
    fate: Fate
    test: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """What pytest said: `failed` and `broke` are tests, `words` the end of what it printed."""

    exit_code: int
    failed: Sequence[str]
    broke: Sequence[str]
    words: str


def copy_tree(source: Path, target: Path) -> Path:
    """The tree at `target`, in place of what is there, with the times of its files and the same virtual environment."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for folder in COPIED:
        shutil.copytree(source / folder, target / folder, ignore=LEFT_OUT)
    for name in FILES:
        shutil.copy2(source / name, target / name)
    (target / ".venv").symlink_to((source / ".venv").resolve())
    return target


def environment(tree: Path) -> dict[str, str]:
    """That of a process which runs the tree's code, and so do the processes that it starts.

    What Python compiles is kept beside the tree, whatever this machine does otherwise: libraries are compiled once and
    not for each mutant, and so is what a mutant did not change, as long as trees come to the same place. A file that
    was changed is newer than what was compiled of it.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(tree.parent / "compiled")}


def run_tests(tree: Path, tests: Sequence[str], *options: str, patience: float = WHOLE) -> Run:
    """Run these tests in a tree, until the first that fails unless `options` say otherwise."""
    report = tree / "report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=line", f"--timeout={EACH}"]
    try:
        ended = subprocess.run(
            [*command, f"--junitxml={report}", *options, *tests],
            cwd=tree,
            env=environment(tree),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return Run(-1, (), ("the tests did not end",), "")
    failed, broke = _read(report) if report.exists() else ((), ())
    return Run(ended.returncode, failed, broke, ended.stdout[-2000:])


def _read(report: Path) -> tuple[Sequence[str], Sequence[str]]:
    """A test that failed, and one that could not begin. What fails at its end does so in the audit of the invariants,
    which is a test too."""
    failed, broke = [], []
    for case in ElementTree.parse(report).iter("testcase"):
        name = str(case.get("name"))
        errors = [str(each.get("message")) for each in case.findall("error")]
        if case.find("failure") is not None:
            failed.append(name)
        elif any(message.startswith("failed on teardown") for message in errors):
            failed.append(f"{name} (the audit after it)")
        elif errors:
            broke.append(name)
    return failed, broke


def judge(mutant: Mutant, base: Path, place: Path) -> Result:
    """Make the mutant from a copy of `base` at `place`, which no other uses meanwhile, and run its tests."""
    began = time.monotonic()

    def result(fate: Fate, test: str) -> Result:
        return Result(mutant, fate, test, time.monotonic() - began)

    tree = copy_tree(base, place)
    try:
        mutant.apply(tree)
    except NoLongerAppliesError as error:
        return result(Fate.BROKEN, str(error))
    run = run_tests(tree, mutant.tests, "-x")
    if run.exit_code == 1 and run.failed and not run.broke:
        return result(Fate.KILLED, run.failed[0])
    if run.exit_code == 0:
        return result(Fate.SURVIVED, "")
    return result(Fate.BROKEN, f"{run.broke[0] if run.broke else run.words[-300:].strip()} (exit {run.exit_code})")
