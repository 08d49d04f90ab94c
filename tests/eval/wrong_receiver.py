"""A receiver that gets its own business wrong, run as a program: the first argument says how, the second is its ledger.

`lose`: some effects never happen although their receipts are kept. `double`: some happen twice.
"""

import asyncio
import sqlite3
import sys
from pathlib import Path
from typing import Any

import app.demo.receiver as right
from app.demo.ledger import apply
from app.demo.receiver import serve
from app.eval.receiver import EvalReceiver
from app.receiver import Event


def lose(connection: sqlite3.Connection, event: Event) -> Any:
    """The tenth effect of each ten does not happen."""
    return None if str(event.key).endswith("7") else apply(connection, event)


def double(connection: sqlite3.Connection, event: Event) -> Any:
    """The tenth effect of each ten happens twice."""
    if str(event.key).endswith("7"):
        apply(connection, event)
    return apply(connection, event)


if __name__ == "__main__":
    vars(right)["apply"] = {"lose": lose, "double": double}[sys.argv[1]]
    asyncio.run(serve(Path(sys.argv[2]), EvalReceiver))
