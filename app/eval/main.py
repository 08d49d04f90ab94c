"""`duehook eval`: somewhere to run, a tenant of its own, one fault after the other, then the judgement."""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import httpx
import psycopg

from app.client import Client, DuehookError, InvalidError, Retries, UnauthorizedError
from app.demo.display import Display
from app.demo.receivers import ReceiverProcess, receivers
from app.demo.signals import ignore_signals, interrupted_by_signals
from app.eval.faults import Fault
from app.eval.installation import Installation, an_installation_of_our_own
from app.eval.judgement import judge
from app.eval.lag import Samples, sampling
from app.eval.ledger import Ledger, ledger_of
from app.eval.page import page
from app.eval.printing import print_report
from app.eval.report import FaultReport, NotRun, Report
from app.eval.tenant import a_tenant
from app.eval.thresholds import Thresholds
from app.eval.trial import NAIVE, RECEIVERS, Attempted, MissedError, Trial
from app.local.errors import LocalServiceError

PROGRAM = (sys.executable, "-P", "-m", "app.eval.receiver")
# Asked again for as long as a restart takes, and soon.
RETRIES = Retries(tries=1_000, seconds=60.0, timeout=10.0, first=0.1, longest=1.0)
PATIENCE, LEASES = 30.0, 12.0  # seconds, and leases beside them, that anything of a trial may take
NOT_ALLOWED = (
    "The installation does not send to 127.0.0.1, where the receivers are: add 127.0.0.0/8 to DUEHOOK_ALLOWED_NETWORKS"
    " of its processes and start them again."
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to run and where; `installation` is None for a service of its own. `program` is that of the receivers."""

    faults: Sequence[Fault]
    thresholds: Thresholds
    installation: Installation | None = None
    disruptive: bool = False
    program: Sequence[str] = PROGRAM


def run(wanted: Wanted, *, json: bool = False, html: Path | None = None) -> None:
    """Run the faults and print the report; exits with 1 when a threshold fails or a fault did not come about.

    Raises LocalServiceError, one sentence, when it can't be run. Nothing of it is left running or lying about.
    """
    if html is not None:
        _write(html, "", mode="a")  # found out now, not when all is done; what is there stays until then
    with Display() as display:
        report = perform(wanted, display)
    if html is not None:
        _write(html, page(report))
        display.tell(f"Written: {html}.")
    if json:
        print(report.to_json())
    else:
        print_report(report)
    if report.problems():
        sys.exit(1)


def perform(wanted: Wanted, display: Display) -> Report:
    """The whole of it, from nothing to a report."""
    with ExitStack() as stack:
        stack.enter_context(interrupted_by_signals())
        home = stack.enter_context(_home())
        display.tell("Starting." if wanted.installation else "Starting a service of its own, and receivers.")
        running = stack.enter_context(receivers(RECEIVERS, home, wanted.program))
        running[NAIVE].tell(naive=True)
        where = wanted.installation or stack.enter_context(an_installation_of_our_own(home))
        stack.callback(ignore_signals)
        stack.callback(display.tell, "Cleaning up.")
        tenant, key = stack.enter_context(
            a_tenant(where.database_url, display.tell, lease=where.lease, erase=not where.is_ours)
        )
        stack.callback(ignore_signals)
        with _sentences(where):
            return _evaluate(stack, wanted, where, tenant, key, running, display)


def _evaluate(
    stack: ExitStack,
    wanted: Wanted,
    where: Installation,
    tenant: str,
    key: str,
    running: Mapping[str, ReceiverProcess],
    display: Display,
) -> Report:
    began, began_at = time.monotonic(), datetime.now(UTC)
    client = stack.enter_context(Client(where.api_url, key, retries=RETRIES))
    ledger = stack.enter_context(ledger_of(where.database_url, tenant))
    where = replace(where, scan_share=ledger.scan_share())
    samples = stack.enter_context(sampling(where.database_url, tenant))
    display.tell(f"Ready: tenant {tenant} on {where.name}.")
    tried, not_run = [], []
    for place, fault in enumerate(wanted.faults):
        display.bar("faults", place, len(wanted.faults), fault.name)
        obstacle = fault.obstacle(where, disruptive=wanted.disruptive)
        if obstacle:
            not_run.append(NotRun(fault.name, fault.title, obstacle))
            display.tell(f"{fault.name} is not run: {obstacle}.")
            continue
        display.tell(f"{fault.name}: {fault.title}.")
        tried.append(_try(fault, where, client, ledger, running, display))
    display.bar("faults", len(wanted.faults), len(wanted.faults))
    return Report(
        installation=where.name,
        tenant=tenant,
        version=version("duehook"),
        began_at=began_at.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 1),
        lease_seconds=where.lease,
        deadline_seconds=where.deadline,
        faults=_judge_all(tried, ledger, running, samples, wanted.thresholds),
        not_run=not_run,
    )


def _judge_all(
    tried: Sequence[Attempted],
    ledger: Ledger,
    running: Mapping[str, ReceiverProcess],
    samples: Samples,
    thresholds: Thresholds,
) -> list[FaultReport]:
    return [judge(each, ledger, running, samples, thresholds.of(each.name)) for each in tried]


def _try(
    fault: Fault,
    where: Installation,
    client: Client,
    ledger: Ledger,
    running: Mapping[str, ReceiverProcess],
    display: Display,
) -> Attempted:
    patience = PATIENCE + LEASES * where.lease
    trial = Trial(fault.name, where, client, ledger, running, tell=display.tell, patience=patience)
    try:
        fault.run(trial)
    except MissedError as error:
        trial.found.missed = str(error)
        display.tell(f"  It did not come about: {error}.")
    finally:
        trial.tell(*RECEIVERS, slow=0)
    trial.settle()
    trial.close()
    return trial.found


@contextmanager
def _home() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="duehook-eval-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _sentences(where: Installation) -> Iterator[None]:
    """What the service says no to, as a sentence that says what to change."""
    try:
        yield
    except InvalidError as error:
        raise LocalServiceError(NOT_ALLOWED if "url" in str(error) else f"{error}.") from None
    except UnauthorizedError:
        raise LocalServiceError(
            f"The API at {where.api_url} does not know a key that was just made in the database at"
            f" {where.database_place}: they are of two installations; set DUEHOOK_API_URL and DUEHOOK_DATABASE_URL"
            " of one."
        ) from None
    except (DuehookError, httpx.HTTPError) as error:
        raise LocalServiceError(f"{error}.") from None
    except psycopg.OperationalError as error:
        raise LocalServiceError(f"The database can't be used: {str(error).strip().splitlines()[0]}.") from None


def _write(file: Path, text: str, mode: str = "w") -> None:
    try:
        with file.open(mode, encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise LocalServiceError(f"{file} can't be written ({error.strerror}): give --html another file.") from None
