"""`duehook wakeups shadow`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.finding import find_service
from app.cli.options import Json, adapter_of
from app.cli.printing import FAILED, show_json, show_table
from app.domain.wakeups import Adapter

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from app.core.shadow import Compared
    from app.domain.wakeups import Kind


def shadow(
    candidate: Annotated[
        str | None,
        typer.Option(
            metavar="queue|scan", help="Who would notice everything; the one that notices less now by default."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compare what an adapter would wake with what is due by the tables themselves; changes nothing.

    Ends with exit code 1 when something due would not be woken, or somebody would be woken for nothing.
    """
    from app.cli.ledger import ledger_of
    from app.core import wakeups
    from app.core.shadow import compare

    given = None if candidate is None else adapter_of(candidate)
    settings = find_service()
    with ledger_of(settings) as engine:
        with engine.begin() as connection:
            shares, fleet = wakeups.shares(connection), wakeups.fleet(connection)
        adapter = given or (Adapter.SCAN if shares[Adapter.SCAN] <= 50 else Adapter.QUEUE)
        if not fleet.count(adapter):
            print(
                f"duehook: {fleet.unseen(wakeups.ROLE[adapter])}: this compares what it would wake if it ran.",
                file=sys.stderr,
            )
        with _progress(engine) as told:
            compared = compare(engine, publish_lease=settings.publish_lease, told=told)
    if json:
        show_json(_document(adapter, compared))
    else:
        _print(adapter, compared)
    if any(each.missed.number or each.needless.number for each in compared.values()):
        raise typer.Exit(FAILED)


@contextmanager
def _progress(engine: "Engine") -> Iterator[Callable[[int], None]]:
    """A bar on standard error, for somebody who waits in front of it."""
    if not sys.stderr.isatty():
        yield lambda number: None
        return
    from rich.console import Console
    from rich.progress import Progress

    from app.core.shadow import estimate

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("comparing", total=estimate(engine))
        yield lambda number: progress.advance(bar, number)


def _document(candidate: Adapter, compared: "dict[Kind, Compared]") -> dict[str, Any]:
    return {
        "candidate": candidate,
        "kinds": {
            kind: {
                "due": each.due,
                "would_wake": each.would_wake,
                "on_the_way": each.on_the_way,
                "missed": each.missed.number,
                "missed_ids": list(each.missed.ids),
                "needless": each.needless.number,
                "needless_ids": list(each.needless.ids),
            }
            for kind, each in compared.items()
        },
    }


def _print(candidate: Adapter, compared: "dict[Kind, Compared]") -> None:
    show_table(
        (f"{candidate} of", "due", "would wake", "on the way", "missed", "needless"),
        [
            (kind, each.due, each.would_wake, each.on_the_way, each.missed.number, each.needless.number)
            for kind, each in compared.items()
        ],
    )
    for kind, each in compared.items():
        for what, difference in (("missed", each.missed), ("needless", each.needless)):
            if difference.number:
                more = f" and {difference.number - len(difference.ids)} more" * (
                    difference.number > len(difference.ids)
                )
                print(f"{what} {kind}: {', '.join(difference.ids)}{more}")
