"""Which service a command is about: the one that the settings name, or the one that runs in the home."""

from pydantic import SecretStr

from app import settings as settings_of
from app.cli.printing import fail, wrong_use
from app.local import connection
from app.local.connection import Connection
from app.local.up.home import secrets_key_of
from app.settings import Settings, SettingsError


def load_settings() -> Settings:
    """The settings as they were given; wrong ones end the command."""
    try:
        return settings_of.load()
    except SettingsError as error:
        wrong_use(str(error))


def find_service() -> Settings:
    """The settings, with what is missing taken from the service that runs in the home."""
    settings = load_settings()
    if settings.database_url is not None:
        return settings
    running = connection.read(settings.home)
    if running is None:
        only = ", and this command works on the database, not over DUEHOOK_API_URL" if settings.api_url else ""
        fail(
            f"no service: nothing runs in {settings.home.absolute()}{only}; start one with `duehook up`, "
            "or set DUEHOOK_DATABASE_URL or DUEHOOK_HOME."
        )
    return settings.model_copy(update=_supplied(settings, running))


def _supplied(settings: Settings, running: Connection) -> dict[str, object]:
    """What the running service knows and the settings leave open."""
    known = {
        "database_url": running.database_url,
        "broker_url": running.broker_url,
        "flower_login": f"{running.flower_user}:{running.flower_password}",
    }
    supplied: dict[str, object] = {
        name: SecretStr(value) for name, value in known.items() if getattr(settings, name) is None
    }
    if not settings.secrets_key:
        supplied["secrets_key"] = secrets_key_of(settings.home)
    return supplied
