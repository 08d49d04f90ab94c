"""`duehook demo`: set everything up, do the main job while things go wrong, judge, clean up."""

import asyncio
import shutil
import signal
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

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
        stack.enter_context(_interrupted_by_signals())
        home = stack.enter_context(_home(display, keep=keep))
        display.tell("Starting PostgreSQL, Redis, API, relay, workers, beat and three receivers.")
        running = stack.enter_context(receivers(SUBSCRIPTIONS, home))
        service = stack.enter_context(running_service(home))
        stack.callback(_ignore_signals)
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


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Every one of them raises KeyboardInterrupt, so that everything is stopped and removed on the way out."""
    heeded = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]  # `nohup` means it
    before = {each: signal.signal(each, signal.default_int_handler) for each in heeded}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _ignore_signals() -> None:
    """While everything is being stopped: it takes seconds, and half of it would be worse."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
