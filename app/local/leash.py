"""Becomes a server that ends together with its owner: a file that `app.local.child` runs as a program.

A program of its own because the kernel forgets the wish at a change of user: it has to be uttered after
that change and before the server's exec, and no Python may run between fork and exec of a threaded owner.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def become(owner: int, ending: int, command: list[str]) -> None:
    """Asks for signal `ending` at the owner's death, then execs `command`."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ending)
    if os.getppid() != owner:  # it died before the wish was uttered, so the signal would never come
        sys.exit(f"pid {owner}, which wanted {command[0]}, is gone")
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # an owner that blocks signals hands its mask down
    os.execv(command[0], command)


if __name__ == "__main__":
    become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
