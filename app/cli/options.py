"""Options and arguments that commands share."""

from typing import Annotated

import typer

from app.cli.printing import wrong_use
from app.domain.wakeups import Adapter

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def adapter_of(name: str) -> Adapter:
    """The adapter of this name; another name ends the command."""
    if name not in list(Adapter):
        wrong_use(f"{name!r} is not an adapter: use queue or scan.")
    return Adapter(name)
