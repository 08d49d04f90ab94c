"""Options and arguments that commands share."""

from typing import Annotated

import typer

from app.cli.printing import wrong_use
from app.domain.identity import is_tenant
from app.domain.wakeups import Adapter

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def adapter_of(name: str) -> Adapter:
    """The adapter of this name; another name ends the command."""
    if name not in list(Adapter):
        wrong_use(f"{name!r} is not an adapter: use queue or scan.")
    return Adapter(name)


def check_tenant(name: str) -> None:
    """End the command when this can't name a tenant."""
    if not is_tenant(name):
        wrong_use(f"{name!r} can't name a tenant: use 1 to 64 letters, digits, _ and -, a letter or digit first.")
