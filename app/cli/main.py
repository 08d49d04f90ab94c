"""The command line's entry."""

import os
import signal
import sys


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
    finally:
        _flush()


def _flush() -> None:
    """A reader that has gone away, as in `duehook keys list | head -1`, is no reason for a traceback at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
