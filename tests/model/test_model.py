"""The protocol as a model that spin explores exhaustively: it holds, and without any one of its guards it does not."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "model" / "duehook.pml"
PAGE = ROOT / "docs" / "model.md"
SCENES = {"event": ("-DFOLLOWED=true", "-DCRASHES=1"), "reservation": ("-DFOLLOWED=false", "-DCRASHES=2")}
NAME = re.compile(r"`([^`]+)`")
spin = pytest.mark.skipif(
    not (shutil.which("spin") and shutil.which("gcc")), reason="spin or gcc is missing, run: apt-get install spin gcc"
)


def table(heading: str) -> list[list[str]]:
    """The cells of the table under a heading of the page, without its first two lines."""
    part = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def inlines() -> set[str]:
    return set(re.findall(r"^inline (\w+)", MODEL.read_text(), re.MULTILINE))


def properties() -> set[str]:
    declared = re.search(r"/\* The properties.*?#define must", MODEL.read_text(), re.DOTALL)
    assert declared
    names = re.findall(r"^bool ([^;]+);", declared[0], re.MULTILINE)
    return {each.strip() for some in names for each in some.split(",")} | {"looked_at_again"}


def guards() -> set[str]:
    declared = re.search(r"mtype:guard = \{ NOTHING,([^}]+)\}", MODEL.read_text())
    assert declared
    return set(re.findall(r"\w+", declared[1]))


@dataclass(frozen=True)
class Explored:
    """What pan said; `complete` is false when it did not see every state, `broke` is empty when nothing did."""

    said: str

    @property
    def states(self) -> int:
        found = re.search(r"(\d+) states, stored", self.said)
        assert found, self.said
        return int(found[1])

    @property
    def complete(self) -> bool:
        incomplete = ("Search not completed", "max search depth too small", "out of memory", "hash compaction", "Bit")
        return "Full statespace search" in self.said and not any(each in self.said for each in incomplete)

    @property
    def broke(self) -> str:
        error = re.search(r"^pan:1: (.*)$", self.said, re.MULTILINE)
        if not error:
            assert "errors: 0" in self.said, self.said
            return ""
        if "acceptance cycle" in error[1]:
            return "looked_at_again"
        named = re.search(r"\|\|(\w+)\) \(at depth", error[1])
        return named[1] if named else error[1]


def explore(folder: Path, scene: str, *, without: str = "NOTHING", long_run: bool = False) -> Explored:
    """Every order of the steps; `long_run` looks for cycles too, with one worker and everybody treated fairly."""
    given = [*SCENES[scene], f"-DWITHOUT={without}", f"-DWORKERS={1 if long_run else 2}"]
    _run(folder, ["spin", *given, *(["-DLOOKED"] if long_run else []), "-a", str(MODEL)])
    kind = ["-DNFAIR=3"] if long_run else ["-DSAFETY", "-DNOCLAIM"]
    speed = "-O2" if without == "NOTHING" else "-O0"
    _run(folder, ["gcc", "-w", speed, *kind, "-DMEMLIM=2000", "-o", "pan", "pan.c"])
    return Explored(_run(folder, ["./pan", "-m1000000", *(["-a", "-f"] if long_run else [])]))


def _run(folder: Path, command: Sequence[str]) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@spin
@pytest.mark.slow
@pytest.mark.parametrize("long_run", [False, True], ids=["at_every_step", "in_the_long_run"])
@pytest.mark.parametrize("scene", SCENES)
def test_every_order_of_the_steps_keeps_the_properties(scene: str, long_run: bool, tmp_path: Path) -> None:
    explored = explore(tmp_path, scene, long_run=long_run)
    print(f"\n{scene}, {'in the long run' if long_run else 'at every step'}: {explored.states:,} states explored")
    assert not explored.broke
    assert explored.complete


@spin
@pytest.mark.slow
@pytest.mark.parametrize(("guard", "scene", "_where", "property_"), table("Guards"))
def test_without_a_guard_its_property_breaks(
    guard: str, scene: str, _where: str, property_: str, tmp_path: Path
) -> None:
    of, _, long_run = scene.partition(", ")
    explored = explore(tmp_path, of, without=guard.strip("`"), long_run=bool(long_run))
    print(f"\nwithout {guard.strip('`')}: {explored.broke} breaks after {explored.states:,} states")
    assert explored.broke == property_.strip("`")


def test_the_page_names_every_guard_and_a_guard_for_every_property() -> None:
    rows = table("Guards")
    assert {guard.strip("`") for guard, *_ in rows} == guards()
    assert {each.strip("`") for *_, each in rows} == properties()
    assert {each.strip("`") for each, *_ in table("Properties")} == properties()
    assert all(f"with({guard})" in MODEL.read_text() for guard in guards())


def test_the_page_names_every_action() -> None:
    named = [name for row in table("Actions") for name in NAME.findall(row[0])]
    assert sorted(named) == sorted(inlines())


def test_every_statement_that_the_page_names_is_in_the_code() -> None:
    migrations = "".join(each.read_text() for each in (ROOT / "app/ledger/migrations/sql").rglob("*.sql"))
    for action, where, statements in table("Actions"):
        code = "".join((ROOT / each).read_text() for each in NAME.findall(where))
        for name in NAME.findall(statements):
            if name.startswith("duehook."):
                assert re.search(rf"FUNCTION {re.escape(name)}\(", migrations), (action, name)
            elif name.endswith("()"):
                assert f"def {name.removesuffix(')')}" in code, (action, name)
            else:
                assert f"/* {name} */" in code, (action, name)
