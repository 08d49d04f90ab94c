"""`duehook wakeups show|set|shadow`."""

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.finding import find_service
from app.cli.options import Json
from app.cli.printing import show_json, show_table, wrong_use
from app.cli.shadow import shadow
from app.domain.wakeups import Adapter

if TYPE_CHECKING:
    from app.core.wakeups import Part

app = typer.Typer(
    help="Which adapter notices what is due: the queue (relay, Redis, workers) or the scan (`duehook scan`).",
    no_args_is_help=True,
)
app.command(epilog="Example: duehook wakeups shadow --candidate scan")(shadow)


@app.command(epilog="Example: duehook wakeups show --json")
def show(json: Json = False) -> None:
    """Show each adapter's share of the work, the processes that see to it, and what is due."""
    from app.cli.ledger import ledger_of
    from app.core import wakeups

    with ledger_of(find_service()) as engine:
        parts = wakeups.read(engine)
    if json:
        show_json(_document(parts))
        return
    columns = ("adapter", "share", "processes", "due", "oldest due")
    show_table(columns, [(each.adapter, f"{each.share} %", each.processes, *_due(each)) for each in parts])


@app.command(
    "set", epilog="Example: duehook wakeups set scan (or, for half of it: duehook wakeups set scan --share 50)"
)
def set_(
    adapter: Annotated[str, typer.Argument(metavar="queue|scan", help="Who notices what is due.")],
    share: Annotated[
        str, typer.Option(metavar="N", help="Only N % of the work, by hash of the id; the other adapter has the rest.")
    ] = "100",
    json: Json = False,
) -> None:
    """Give the work to an adapter, or a share of it. Every process follows within seconds; nothing is lost by it."""
    from app.cli.ledger import ledger_of
    from app.core import wakeups

    if adapter not in list(Adapter):
        wrong_use(f"{adapter!r} is not an adapter: use queue or scan.")
    if not re.fullmatch(r"\d{1,3}", share, re.ASCII) or int(share) > 100:
        wrong_use(f"{share!r} is not a share: use a whole number from 0 to 100.")
    with ledger_of(find_service()) as engine:
        wakeups.divide(engine, Adapter(adapter), int(share))
        parts = wakeups.read(engine)
    for role in [wakeups.ROLE[each.adapter] for each in parts if each.share and not each.processes]:
        print(f"duehook: no {role} has been seen; start one with `duehook {role}`.", file=sys.stderr)
    if json:
        show_json(_document(parts))
    else:
        queue, scan = (each.share for each in parts)
        print(f"The queue notices {queue} % of what is due, the scan {scan} %; every process follows within seconds.")


def _document(parts: "list[Part]") -> dict[str, Any]:
    return {
        each.adapter.value: {
            "share": each.share,
            "processes": each.processes,
            "due": each.due.number,
            "oldest_due_age_seconds": 0.0 if each.due.oldest_age is None else each.due.oldest_age.total_seconds(),
        }
        for each in parts
    } | {"at_least": [f"{each.adapter}.due" for each in parts if each.due.more]}


def _due(part: "Part") -> tuple[str, str]:
    number = f"{part.due.number} or more" if part.due.more else str(part.due.number)
    return number, "none" if part.due.oldest_age is None else f"{part.due.oldest_age.total_seconds():.1f} s ago"
