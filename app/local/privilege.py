"""Which user a server runs as: PostgreSQL refuses root, and no server of ours needs it."""

import os
import shutil
from pathlib import Path

from app.local.errors import LocalServiceError

NOBODY = 65534


def make_folder(folder: Path) -> None:
    """Makes the folder a server keeps its files in, and gives it to the user that server will run as."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() == 0 and folder.stat().st_uid == 0:
        os.chown(folder, NOBODY, NOBODY)


def as_user_of(folder: Path) -> list[str]:
    """What goes before a command so that root runs it as the folder's user; nothing for anybody else.

    It keeps the one capability that lets it reach a folder below a home that only root may enter.
    """
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        raise LocalServiceError(
            "PostgreSQL refuses to run as root, and setpriv is missing: "
            "apt-get install util-linux, or run duehook as another user."
        )
    user = folder.stat()
    return [
        "setpriv",
        "--securebits=+no_setuid_fixup",
        f"--reuid={user.st_uid}",
        f"--regid={user.st_gid}",
        "--clear-groups",
        "--inh-caps=-all,+dac_override",
        "--ambient-caps=+dac_override",
        "--",
    ]
