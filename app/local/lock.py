"""One owner per home folder: two PostgreSQL servers on the same files would destroy them."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from app.local.errors import LocalServiceError


class HomeLock:
    """Holds `home/lock`, making the folder when it is missing; the kernel lets go when the holder dies.

    Raises LocalServiceError when another holder lives or the folder can't be written to.
    Taking it a second time, even from the same interpreter, is refused like anybody else's try.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._file: int | None = None

    def __enter__(self) -> Self:
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LocalServiceError(
                f"The home folder {self.home} can't be used ({error.strerror}): "
                "make it writable, or set DUEHOOK_HOME to another folder."
            ) from error
        self._take(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _take(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(file, 20, 0).decode() or "unknown"
            self.__exit__(None, None, None)
            raise LocalServiceError(
                f"A duehook (pid {holder}) already runs in {self.home}: "
                "stop it first, or set DUEHOOK_HOME to another folder."
            ) from error
        os.truncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
