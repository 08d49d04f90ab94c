"""The command line's entry."""

import errno
import os
import signal
import sys

CUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of an output that is full


def main() -> None:
    """Run the command of this process and exit: 0 fine, 1 it failed, 2 wrong use."""
    # Ctrl-C before anything has begun ends the process and says nothing.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from app.cli.commands import app
    from app.cli.printing import FAILED
    from app.local.errors import LocalServiceError
    from app.settings import SettingsError

    signal.signal(signal.SIGINT, interrupted)
    try:
        app(prog_name="duehook")
    except (LocalServiceError, SettingsError) as error:
        print(f"duehook: {error}", file=sys.stderr)
        sys.exit(FAILED)
    except OSError as error:
        if error.errno not in CUT:
            raise
        _tell_cut(error)
        sys.exit(FAILED)
    finally:
        if not _flush():
            sys.exit(FAILED)


def _flush() -> bool:
    """Whether nothing was cut; a reader that has gone away, as in `duehook keys list | head -1`, wants no more."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno in CUT:
            _tell_cut(error)
            return False
    return True


def _tell_cut(error: OSError) -> None:
    print(f"duehook: not all of it could be written ({error.strerror}).", file=sys.stderr)


if __name__ == "__main__":
    main()
