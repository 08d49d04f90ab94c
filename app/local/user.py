"""Who runs a command on this machine."""

import os
import pwd


def command_actor() -> str:
    """How the audit log names who ran this command: `cli:` and the user, whatever the environment says he is called."""
    uid = os.getuid()
    try:
        return f"cli:{pwd.getpwuid(uid).pw_name}"
    except KeyError:  # in a container a process may run as nobody's number
        return f"cli:{uid}"
