"""`duehook wakeups show|set|shadow`."""

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.finding import find_service
from app.cli.options import Json, adapter_of
from app.cli.printing import show_json, show_table, wrong_use
from app.cli.shadow import shadow
from app.domain.wakeups import Adapter
from app.local.user import command_actor

if TYPE_CHECKING:
    from app.core.wakeups import Fleet, Part

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
        parts, fleet = wakeups.read(engine)
    if json:
        show_json(_document(parts, fleet))
        return
    columns = ("adapter", "share", "processes", "due", "oldest due")
    show_table(
        columns, [(each.adapter, f"{each.share} %", _processes(each.adapter, fleet), *_due(each)) for each in parts]
    )


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

    chosen = adapter_of(adapter)
    if not re.fullmatch(r"\d{1,3}", share, re.ASCII) or int(share) > 100:
        wrong_use(f"{share!r} is not a share: use a whole number from 0 to 100.")
    with ledger_of(find_service()) as engine:
        wakeups.divide(engine, chosen, int(share), command_actor())
        parts, fleet = wakeups.read(engine)
    for who in [who for each in parts if each.share for who in fleet.lacking(each.adapter)]:
        print(f"duehook: {fleet.unseen(who)}; start one with `duehook {who}`.", file=sys.stderr)
    if json:
        show_json(_document(parts, fleet))
    else:
        queue, scan = (each.share for each in parts)
        print(f"The queue notices {queue} % of what is due, the scan {scan} %; every process follows within seconds.")


def _document(parts: "list[Part]", fleet: "Fleet") -> dict[str, Any]:
    return {
        each.adapter.value: {
            "share": each.share,
            "processes": fleet.count(each.adapter),
            **({"workers": len(fleet.workers())} if each.adapter is Adapter.QUEUE else {}),
            "due": each.due.number,
            "oldest_due_age_seconds": 0.0 if each.due.oldest_age is None else each.due.oldest_age.total_seconds(),
        }
        for each in parts
    } | {"at_least": [f"{each.adapter}.due" for each in parts if each.due.more]}


def _processes(adapter: Adapter, fleet: "Fleet") -> str:
    if adapter is Adapter.SCAN:
        return f"scan {fleet.count(adapter)}"
    return f"relay {fleet.count(adapter)}, workers {len(fleet.workers())}"


def _due(part: "Part") -> tuple[str, str]:
    number = f"{part.due.number} or more" if part.due.more else str(part.due.number)
    return number, "none" if part.due.oldest_age is None else f"{part.due.oldest_age.total_seconds():.1f} s ago"
