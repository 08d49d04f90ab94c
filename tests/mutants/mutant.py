"""What a mutant is: one guard of the design taken out of the code by an edit, and the tests that must notice."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SQL = "app/ledger/migrations/sql/"


class NoLongerAppliesError(Exception):
    """The code has changed, and the edit no longer says what to remove; the message names the mutant and the file."""


@dataclass(frozen=True, slots=True)
class Edit:
    """In the file at `path` the text `old`, which is there exactly once, becomes `new`."""

    path: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The file's text with the guard gone."""
        if (found := text.count(self.old)) != 1 or self.old == self.new:
            raise NoLongerAppliesError(f"{self.path} has the old text {found} times and not once: {self.old[:80]!r}")
        return text.replace(self.old, self.new)

    def apply(self, root: Path) -> None:
        """Write it."""
        target = root / self.path
        target.write_text(self.applied(target.read_text(encoding="utf-8")), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Mutant:
    """`name` without the guard that `guard` tells in a sentence, of the invariant with this number (design, section 2).

    Several edits take out guards that stand behind each other: one alone would change nothing that anybody can see,
    and `guard` says which stand there. `tests` are node ids, at least one of which must fail. `covers` names what of
    the database is gone: trigger functions, constraints and unique indexes.
    """

    name: str
    invariant: int
    guard: str
    edits: tuple[Edit, ...]
    change: str
    tests: tuple[str, ...]
    covers: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where it is, for people: the first edit's file."""
        return self.edits[0].path

    def apply(self, root: Path) -> None:
        """Take the guard out of the tree at `root`."""
        for edit in self.edits:
            edit.apply(root)

    def says(self, words: Iterable[str]) -> bool:
        """Whether each of these words is in its name, guard, change, file or tests."""
        told = " ".join((self.name, self.guard, self.change, *(edit.path for edit in self.edits), *self.tests)).lower()
        return all(word.lower() in told for word in words)


def sql(path: str, old: str, new: str = "") -> Edit:
    """An edit of a migration's SQL; the last definition of a function is the one in force."""
    return Edit(SQL + path, old, new)
