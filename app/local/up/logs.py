"""Logs that stay bounded although their writers never close them."""

import shutil
from pathlib import Path

MOST_BYTES = 20_000_000


def bound(log: Path, most: int = MOST_BYTES) -> None:
    """Move what a log holds aside, to `<name>.1`, once it is longer than `most`; the writer goes on in the same file.

    Works because every writer appends. A line written between the copy and the cut is lost.
    """
    if not log.exists() or log.stat().st_size <= most:
        return
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    with log.open("r+b") as file:
        file.truncate(0)
