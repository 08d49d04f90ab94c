"""Takes each guard of the design out of a copy of the tree and shows which test dies of it: `make mutants`.

Ends with 1 when a mutant survives, when an edit no longer applies, or when a test is red without any mutant.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.mutants.every import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.running import ROOT, Fate, Result, copy_tree, judge, run_tests

COLOUR = {Fate.KILLED: "green", Fate.SURVIVED: "red", Fate.BROKEN: "yellow"}
LONGEST_BASELINE = 1800.0  # seconds
console = Console(width=None if sys.stdout.isatty() else 200)


def main() -> int:
    """The exit code: 0 when every mutant that was picked has died."""
    asked = _arguments()
    picked = [each for each in MUTANTS if each.says(asked.k.split()) and asked.invariant in (None, each.invariant)]
    if not picked:
        console.print("no mutant has these words: leave some out, or see them all with --list")
        return 2
    if asked.list:
        for each in picked:
            console.print(f"{each.invariant:>2} {each.name}: {each.guard}", markup=False)
        return 0
    began = time.monotonic()
    with TemporaryDirectory(prefix="duehook-mutants-") as folder:
        base = copy_tree(ROOT, Path(folder) / "base")
        if not _baseline(base, picked, asked.jobs):
            return 1
        results = _judge_all(picked, base, asked.jobs)
    _show(results, time.monotonic() - began)
    if asked.json:
        asked.json.write_text(json.dumps([_members(each) for each in results], indent=2) + "\n", encoding="utf-8")
    return 0 if all(each.fate is Fate.KILLED for each in results) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("-k", default="", metavar="WORDS", help="only those that have each of these words")
    parser.add_argument("--invariant", type=int, metavar="N", help="only those of this invariant")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="side by side (2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what came out there too")
    parser.add_argument("--list", action="store_true", help="show what would be removed, and remove nothing")
    return parser.parse_args()


def _baseline(base: Path, picked: Sequence[Mutant], jobs: int) -> bool:
    """Whether the tests of all pass while nothing is removed: one that is red anyway would kill every mutant."""
    tests = sorted({test for mutant in picked for test in mutant.tests})
    began = time.monotonic()
    run = run_tests(base, tests, "-n", str(jobs), "--dist", "worksteal", patience=LONGEST_BASELINE)
    console.print(f"{len(tests)} tests without any mutant: {time.monotonic() - began:.0f} s")
    if run.exit_code != 0:
        red = ", ".join((*run.failed, *run.broke))
        console.print(f"they must pass first; these are red: {red or run.words}", markup=False)
    return run.exit_code == 0


def _judge_all(picked: Sequence[Mutant], base: Path, jobs: int) -> list[Result]:
    places: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        places.put(base.parent / f"mutant-{number}")

    def judge_one(mutant: Mutant) -> Result:
        place = places.get()
        try:
            result = judge(mutant, base, place)
        finally:
            places.put(place)
        console.print(
            f"{result.mutant.invariant:>2} {result.fate.value:<8} {mutant.name}: {result.test}"
            f" ({result.seconds:.0f} s)",
            markup=False,
            highlight=False,
        )
        return result

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(judge_one, picked))


def _show(results: Sequence[Result], seconds: float) -> None:
    table = Table("no.", "guard", "file", "the edit", "test that died", "s", title="mutants", show_lines=False)
    for each in sorted(results, key=lambda result: (result.mutant.invariant, result.fate is Fate.KILLED)):
        colour = COLOUR[each.fate]
        said = each.test if each.fate is Fate.KILLED else f"{each.fate.value.upper()} {each.test}"
        table.add_row(
            str(each.mutant.invariant),
            escape(each.mutant.guard),
            escape(each.mutant.path.removeprefix("app/ledger/migrations/")),
            escape(each.mutant.change),
            f"[{colour}]{escape(said)}[/]",
            f"{each.seconds:.0f}",
        )
    console.print(table)
    counts = Counter(each.fate for each in results)
    console.print(", ".join(f"{counts[fate]} {fate.value}" for fate in Fate) + f" in {seconds:.0f} s")


def _members(result: Result) -> dict[str, object]:
    mutant = result.mutant
    return {
        "name": mutant.name,
        "invariant": mutant.invariant,
        "guard": mutant.guard,
        "files": [edit.path for edit in mutant.edits],
        "edit": mutant.change,
        "fate": result.fate.value,
        "test": result.test,
        "seconds": round(result.seconds, 1),
    }


if __name__ == "__main__":
    raise SystemExit(main())
