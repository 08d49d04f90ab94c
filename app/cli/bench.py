"""`duehook bench`."""

from pathlib import Path
from typing import Annotated

import typer


def bench(
    rounds: Annotated[int, typer.Option(min=1, help="Figures are medians of these.")] = 3,
    deliveries: Annotated[int, typer.Option(min=1, help="In the backlog of each round.")] = 20_000,
    quick: Annotated[bool, typer.Option("--quick", help="A few hundred of everything, to see that it works.")] = False,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all figures to FILE too; - prints only them.")
    ] = None,
) -> None:
    """Measure this machine: deliveries per second, what they cost, lateness, expiries at one instant."""
    from bench.main import run
    from bench.plan import QUICK, Plan

    run(QUICK if quick else Plan(rounds=rounds, deliveries=deliveries), json=json)
