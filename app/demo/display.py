"""What can be watched meanwhile: how far everything is, and what goes wrong, on standard error."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from app.demo.plan import SUBSCRIPTIONS, Plan
from app.demo.tally import Tally


class Display:
    """`tell` prints a line above the bars; on something that is no terminal there are only the lines."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._began = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description:<24}"),  # all of it fits 80 columns
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            refresh_per_second=5,
            disable=not self._console.is_terminal,
        )
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def tell(self, line: str) -> None:
        """Something has happened."""
        self._console.print(f"{time.monotonic() - self._began:5.1f} s  {line}", markup=False, soft_wrap=True)

    def show(self, tally: Tally, plan: Plan) -> None:
        """Move the bars to where things stand."""
        confirmed = len(tally.confirmed)
        self.bar("reservations held", tally.held, plan.reservations)
        ended = f"{confirmed} confirmed, {len(tally.late)} too late"
        self.bar("reservations ended", confirmed + tally.expired, plan.reservations, ended)
        self.bar("orders shipped", tally.shipped, plan.orders)
        for name in SUBSCRIPTIONS:
            note = f"{tally.answers(name, 'duplicate')} duplicates"
            self.bar(f"effects at {name}", tally.keys(name), tally.expected(name, plan), note)

    def bar(self, what: str, done: int, total: int, note: str = "") -> None:
        """Move one bar, which is new when it is first spoken of."""
        if what not in self._bars:
            self._bars[what] = self._progress.add_task(what, total=total, note=note)
        self._progress.update(self._bars[what], completed=done, total=total, note=note)
