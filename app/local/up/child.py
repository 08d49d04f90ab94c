"""One process of a role: started with its settings, ended in order, never outliving this one."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from app.local import leash
from app.local.up.logs import bound
from app.local.up.roles import Role


class Child:
    """Starts as often as it is told to; `place` tells it from others of its role.

    It has a session of its own, so that a terminal's Ctrl-C reaches the supervisor alone, and is killed when the
    supervisor dies: draining would be in vain, PostgreSQL goes at the same moment.
    """

    def __init__(self, role: Role, place: int, *, home: Path, environment: Mapping[str, str]) -> None:
        self.role = role.name
        self.patience = role.patience
        self.log = home / "logs" / f"{role.name}.log"
        self._ready_file = home / "run" / f"{role.name}-{place}.ready"
        self._command = role.command
        # Unbuffered: a log is in order, and whole when its writer is killed.
        self._environment = {
            **environment,
            "DUEHOOK_READY_FILE": str(self._ready_file),
            "PYTHONUNBUFFERED": "1",
        }
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it anew; only from the main thread, for the kernel takes that thread's end for the owner's death."""
        bound(self.log)
        self._ready_file.unlink(missing_ok=True)
        leashed = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), str(int(signal.SIGKILL))]
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            self._popen = subprocess.Popen(
                [*leashed, *self._command],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended since."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def pid(self) -> int:
        """Of the latest start, 0 before the first."""
        return self._popen.pid if self._popen else 0

    @property
    def ready(self) -> bool:
        """Whether this start, not an earlier one, has said so in its ready file."""
        try:
            return self.running and self._ready_file.read_text(encoding="ascii").strip() == str(self.pid)
        except OSError:
            return False

    def terminate(self) -> None:
        """Ask it to drain and end; a repeat is harmless."""
        if self.running and self._popen is not None:
            self._popen.terminate()

    def kill(self) -> None:
        """End it and whatever it started, at once; a repeat does nothing."""
        if self.running and self._popen is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()

    def how_it_ended(self) -> str:
        """For a sentence that begins with its name."""
        code = self._popen.returncode if self._popen else None
        if code is None:
            return "has not ended"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"

    def last_word(self) -> str:
        """The last line it wrote since its start."""
        with self.log.open("rb") as log:
            log.seek(min(self._log_start, log.seek(0, os.SEEK_END)))
            lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else "it said nothing"
