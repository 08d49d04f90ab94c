"""`duehook bench` and its commands."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.printing import wrong_use

app = typer.Typer()
Figures = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write all figures to FILE too; - prints only them.")
]
Plotted = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw it too; needs matplotlib. A .png, .svg or .pdf."),
]
PLOTS = (".png", ".svg", ".pdf")


@app.callback(invoke_without_command=True, epilog="Example: duehook bench --json figures.json")
def bench(
    context: typer.Context,
    rounds: Annotated[int, typer.Option(min=1, help="Figures are medians of these.")] = 3,
    deliveries: Annotated[int, typer.Option(min=1, help="In the backlog of each round.")] = 20_000,
    quick: Annotated[bool, typer.Option("--quick", help="A few hundred of everything, to see that it works.")] = False,
    json: Figures = None,
) -> None:
    """Measure this machine: deliveries per second, what they cost, lateness, expiries at one instant."""
    if context.invoked_subcommand:
        sources = (context.get_parameter_source(name) for name in context.params)
        if any(source is not None and source.name == "COMMANDLINE" for source in sources):
            wrong_use(f"options of {context.invoked_subcommand} come after its name.")
        return
    from bench.main import run
    from bench.plan import QUICK, Plan

    run(QUICK if quick else Plan(rounds=rounds, deliveries=deliveries), json=json)


@app.command(epilog="Example: duehook bench recovery --deliveries 60000 --expiries 20000 --plot recovery.png")
def recovery(
    expiries: Annotated[int, typer.Option(min=100, help="Reservations that are overdue.")] = 100_000,
    deliveries: Annotated[int, typer.Option(min=100, help="Deliveries that are overdue.")] = 300_000,
    quick: Annotated[bool, typer.Option("--quick", help="A few hundred of everything, to see that it works.")] = False,
    json: Figures = None,
    plot: Plotted = None,
) -> None:
    """Measure how a day's work is caught up with that fell due while the service was not there."""
    _check_plot(plot)
    from bench.recovery.main import run
    from bench.recovery.plan import QUICK, Plan

    run(QUICK if quick else Plan(expiries=expiries, deliveries=deliveries), json=json, plot=plot)


@app.command(epilog="Example: duehook bench isolation --rounds 5 --parked 0 --json isolation.json")
def isolation(
    rounds: Annotated[int, typer.Option(min=1, help="Each measures with and without; figures are medians.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="That each of the two takes.")] = 20.0,
    parked: Annotated[
        int, typer.Option(min=0, help="Deliveries to an endpoint that hangs; 0 leaves it out.")
    ] = 100_000,
    quick: Annotated[bool, typer.Option("--quick", help="A few of everything, to see that it works.")] = False,
    json: Figures = None,
) -> None:
    """Measure what a slow endpoint and one that hangs cost the others."""
    from bench.isolation.main import run
    from bench.isolation.plan import QUICK, Plan

    run(QUICK if quick else Plan(rounds=rounds, seconds=seconds, parked=parked), json=json)


@app.command(epilog="Example: duehook bench accept --rounds 5 --json accept.json")
def accept(
    rounds: Annotated[int, typer.Option(min=1, help="Figures are medians of these.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, max=120, help="That each measure of a round takes.")] = 8.0,
    quick: Annotated[bool, typer.Option("--quick", help="A few of everything, to see that it works.")] = False,
    json: Figures = None,
) -> None:
    """Measure how fast the API takes events, and what a flood of one tenant costs the others."""
    from bench.accept.main import run
    from bench.accept.plan import QUICK, Plan

    run(QUICK if quick else Plan(rounds=rounds, seconds=seconds), json=json)


@app.command(epilog="Example: duehook bench peers --only bullmq --only celery-naive --rounds 5 --plot peers.png")
def peers(
    rounds: Annotated[int, typer.Option(min=1, help="Figures are medians of these.")] = 3,
    deliveries: Annotated[int, typer.Option(min=10, help="In the backlog of each turn; slow ones get fewer.")] = 20_000,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A peer to compare with, may be repeated; all without it.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two hundred for each, to see that it works.")] = False,
    json: Figures = None,
    plot: Plotted = None,
) -> None:
    """Measure duehook beside Celery, dramatiq, procrastinate, BullMQ, graphile-worker and pg-boss."""
    _check_plot(plot)
    from bench.peers.main import names, run
    from bench.peers.plan import QUICK, Plan

    if unknown := sorted(set(only or ()) - set(names())):
        wrong_use(f"{', '.join(unknown)} is none of {', '.join(names())}.")
    run(QUICK if quick else Plan(rounds=rounds, deliveries=deliveries), only=only or (), json=json, plot=plot)


def _check_plot(plot: Path | None) -> None:
    if plot is not None and plot.suffix not in PLOTS:
        wrong_use(f"{plot} should end in {', '.join(PLOTS)}.")
