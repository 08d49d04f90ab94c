"""A program started as a child: never as root, in its own session, ending with its owner."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.local import leash
from app.local.privilege import as_user_of

# The kernel takes the death of the *thread* that forked for the parent's. So one thread forks every server
# and lives as long as the interpreter, however short-lived the thread that asked.
_forker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-servers")


class Child:
    """Starts `command` in `folder`, output appended to `log`; it gets `ending` should this process die.

    Its own session keeps a terminal's Ctrl-C from it: only the owner hears that, and stops it in order.
    """

    def __init__(self, command: Sequence[str | Path], *, folder: Path, log: Path, ending: signal.Signals) -> None:
        self._log = log
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._popen = _forker.submit(
                subprocess.Popen,
                leashed(command, folder=folder, ending=ending),
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).result()

    @property
    def pid(self) -> int:
        """Its number, also once it has ended."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def end(self, ending: signal.Signals, *, patience: float) -> bool:
        """Sends the signal and says whether it has ended within `patience` seconds; a repeat is harmless."""
        self._popen.send_signal(ending)
        try:
            self._popen.wait(patience)
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_words(self) -> str:
        """The end of what it wrote to the log since its start."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-8:]) or "it said nothing"


def leashed(command: Sequence[str | Path], *, folder: Path, ending: signal.Signals) -> list[str]:
    """The command line that runs `command` as the user of `folder` and ends it when this process dies."""
    leash_line = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), str(int(ending))]
    return [*as_user_of(folder), *leash_line, *map(str, command)]


def environment() -> dict[str, str]:
    """What a server may know of ours: no PG* variable that changes it, and none of the owner's secrets."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
