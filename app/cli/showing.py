"""`duehook demo`."""

from typing import Annotated

import typer

from app.cli.options import Json


def demo(
    json: Json = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave its home, with ledgers and logs.")] = False,
) -> None:
    """Run the main job on real processes while things go wrong, and print what came of it."""
    from app.demo.main import run

    run(json=json, keep=keep)
