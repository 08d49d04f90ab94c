"""`duehook eval`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.options import Json
from app.cli.printing import show_json, show_table, wrong_use

if TYPE_CHECKING:
    from app.eval.thresholds import Thresholds


def eval_(
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="This fault alone; may be repeated.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Print the faults.")] = False,
    thresholds: Annotated[Path | None, typer.Option(metavar="FILE", help="What is good enough, as TOML.")] = None,
    print_thresholds: Annotated[bool, typer.Option("--print-thresholds", help="Print those that hold.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with plots too.")] = None,
    existing: Annotated[
        bool, typer.Option("--existing", help="On the installation that the settings name, in a tenant of its own.")
    ] = False,
    disruptive: Annotated[
        bool, typer.Option("--disruptive", help="There, with faults that others feel: killing, emptying.")
    ] = False,
    json: Json = False,
) -> None:
    """Let the named faults happen on real processes, and judge what came of it.

    By default on a service of its own, which takes a minute or two. Exits with 1
    when a figure is above its threshold.
    """
    from app.eval.faults import FAULTS
    from app.eval.thresholds import nearest

    if list_ and print_thresholds:
        wrong_use("--list and --print-thresholds print different things: ask for one of them.")
    if list_:
        _list(json=json)
        return
    for name in only or []:
        if name not in FAULTS:
            wrong_use(f"{name!r} is not a fault; did you mean {nearest(name, FAULTS)}? --list shows them.")
    if disruptive and not existing:
        wrong_use("--disruptive goes with --existing: a service of its own is always treated badly.")
    names = only or [*FAULTS]
    _run(names, thresholds, html, print_only=print_thresholds, existing=existing, disruptive=disruptive, json=json)


def _list(*, json: bool) -> None:
    from app.eval.faults import FAULTS

    if json:
        show_json([{"name": each.name, "title": each.title, "disruptive": each.disruptive} for each in FAULTS.values()])
        return
    rows = [(each.name, each.title, "yes" if each.disruptive else "") for each in FAULTS.values()]
    show_table(("fault", "what happens", "disruptive"), rows)


def _run(
    names: list[str],
    file: Path | None,
    html: Path | None,
    *,
    print_only: bool,
    existing: bool,
    disruptive: bool,
    json: bool,
) -> None:
    from app.cli.installation import existing_installation
    from app.eval.faults import FAULTS
    from app.eval.installation import OWN_DEADLINE, OWN_LEASE
    from app.eval.main import Wanted, run

    where = existing_installation() if existing else None
    lease, deadline = (where.lease, where.deadline) if where else (OWN_LEASE, OWN_DEADLINE)
    limits = _thresholds(file, lease, deadline)
    if print_only:
        print(limits.to_toml(), end="")
        return
    ordered = [FAULTS[name] for name in dict.fromkeys(names)]
    run(Wanted(ordered, limits, where, disruptive), json=json, html=html)


def _thresholds(file: Path | None, lease: float, deadline: float) -> "Thresholds":
    from app.eval.faults import FAULTS
    from app.eval.thresholds import ThresholdError, built_in, load

    base = built_in(lease=lease, deadline=deadline)
    try:
        return base if file is None else load(file, base, FAULTS)
    except ThresholdError as error:
        wrong_use(f"{error}.")
