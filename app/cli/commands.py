"""The commands. They import what is heavy when they run, so that help and mistakes are answered at once."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from app.cli import audit, bench, dead, deliveries, endpoints, events, jobs, keys, programs, tenants, wakeups
from app.cli.eval import eval_
from app.cli.migrate import migrate
from app.cli.showing import demo
from app.cli.status import status
from app.cli.up import up

EXAMPLES: dict[Callable[..., None], str] = {
    up: "DUEHOOK_API_PORT=9000 duehook up",
    demo: "duehook demo",
    status: "duehook status --json",
    migrate: "DUEHOOK_DATABASE_URL=postgresql://… duehook migrate",
    programs.api: "duehook api",
    programs.relay: "duehook relay",
    programs.worker: "duehook worker expiry upkeep",
    programs.scan: "duehook scan",
    programs.beat: "duehook beat",
    programs.flower: "duehook flower",
}

app = typer.Typer(
    help="Makes things happen when they are due: reservations that expire on time, webhooks that arrive.",
    epilog="Example: duehook up. Settings are environment variables, DUEHOOK_*; a .env file works too.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they print local variables, and those hold keys
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"duehook {version('duehook')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None: ...


for command, example in EXAMPLES.items():
    app.command(epilog=f"Example: {example}")(command)
app.command("eval", epilog="Example: duehook eval --html report.html")(eval_)
app.add_typer(keys.app, name="keys")
app.add_typer(wakeups.app, name="wakeups")
app.add_typer(dead.app, name="dead")
app.add_typer(events.app, name="events")
app.add_typer(endpoints.app, name="endpoints")
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(jobs.app, name="jobs")
app.add_typer(tenants.app, name="tenants")
app.add_typer(audit.app, name="audit")
app.add_typer(bench.app, name="bench")
