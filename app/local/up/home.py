"""What a run finds in the home, and what it keeps there for the next one."""

import shutil
from pathlib import Path

from pydantic import SecretStr

from app.ledger.logins import ROLES, make_logins, url_of
from app.local import connection
from app.local.access import kept_password
from app.local.services import LocalServices
from app.local.up.logs import bound
from app.settings import Settings, listed

FLOWER_USER = "duehook"
SECRETS_KEY = "secrets.key"


def tidy(home: Path) -> None:
    """Make the folders, without what a killed run left there: the caller holds the lock, so none of it is true now."""
    connection.remove(home)
    shutil.rmtree(home / "run", ignore_errors=True)
    for folder in ("run", "logs"):
        (home / folder).mkdir(mode=0o700, exist_ok=True)
    bound_logs(home)


def bound_logs(home: Path) -> None:
    """Keep every log of the home from growing for ever."""
    for log in (home / "logs").glob("*.log"):
        bound(log)


def secrets_key_of(home: Path) -> list[SecretStr]:
    """The keys that the home keeps, a list as in the setting; none where none were made yet."""
    path = home / SECRETS_KEY
    return [SecretStr(key) for key in listed(path.read_text())] if path.exists() else []


def complete(settings: Settings, services: LocalServices) -> Settings:
    """The settings as every process of this run gets them: what was not given, the home supplies."""
    home = services.home
    supplied: dict[str, object] = {
        "home": home,
        "database_url": SecretStr(services.database_url),
        "broker_url": SecretStr(services.broker_url),
    }
    if not settings.secrets_key:
        kept_password(home / SECRETS_KEY)
        supplied["secrets_key"] = secrets_key_of(home)
    if settings.flower_login is None:
        supplied["flower_login"] = SecretStr(f"{FLOWER_USER}:{kept_password(home / 'flower.password')}")
    return settings.model_copy(update=supplied)


def logins(services: LocalServices) -> dict[str, str]:
    """The URL by which each program reaches the ledger, made new in a server of our own.

    None in a server that was given: who may do what there, its owner says.
    """
    if services.postgres is None:
        return {}
    passwords = {program: kept_password(services.home / f"{ROLES[program]}.password") for program in ROLES}
    make_logins(services.database_url, passwords)
    return {program: url_of(services.database_url, program, password) for program, password in passwords.items()}
