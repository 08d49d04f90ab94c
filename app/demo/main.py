"""`duehook demo`: set everything up, do the main job while things go wrong, judge, clean up."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.demo.display import Display
from app.demo.job import Job
from app.demo.plan import SUBSCRIPTIONS, Plan
from app.demo.printing import print_report
from app.demo.receivers import receivers
from app.demo.report import Report
from app.demo.service import running_service
from app.demo.signals import ignore_signals, interrupted_by_signals


def run(*, json: bool = False, keep: bool = False) -> None:
    """Run the demo and print its report; exits with 1 when any business effect is not right.

    Raises LocalServiceError, one sentence, when it can't be set up. Nothing of it is left running or lying about,
    whatever happens; `keep` leaves its home with ledgers and logs.
    """
    with Display() as display:
        report = perform(Plan(), display, keep=keep)
    if json:
        print(report.to_json())
    else:
        print_report(report)
    if report.problems():
        sys.exit(1)


def perform(plan: Plan, display: Display, *, keep: bool = False) -> Report:
    """The whole of it, from nothing to a report."""
    with ExitStack() as stack:
        stack.enter_context(interrupted_by_signals())
        home = stack.enter_context(_home(display, keep=keep))
        display.tell("Starting PostgreSQL, Redis, API, relay, workers, beat and three receivers.")
        running = stack.enter_context(receivers(SUBSCRIPTIONS, home))
        service = stack.enter_context(running_service(home))
        stack.callback(ignore_signals)
        stack.callback(display.tell, "Stopping.")
        return asyncio.run(Job(plan, display, service, running).run())


@contextmanager
def _home(display: Display, *, keep: bool) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="duehook-demo-"))
    try:
        yield home
    finally:
        if keep:
            display.tell(f"Kept in {home}: three *.sqlite ledgers, logs/, and the data of the service.")
        else:
            shutil.rmtree(home, ignore_errors=True)
