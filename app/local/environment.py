"""Settings that a home supplied, as a process gets them: by its environment, for an argument hides from nobody."""

from collections.abc import Sequence

from pydantic import SecretStr

from app.settings import PREFIX, Settings


def environment_of(settings: Settings) -> dict[str, str]:
    """The URLs and secrets that are known, by the names that every process reads them under."""
    secrets: dict[str, Sequence[SecretStr | None]] = {
        "DATABASE_URL": [settings.database_url],
        "BROKER_URL": [settings.broker_url],
        "SECRETS_KEY": settings.secrets_key,
        "FLOWER_LOGIN": [settings.flower_login],
    }
    known = {name: [each.get_secret_value() for each in values if each] for name, values in secrets.items()}
    return {PREFIX + name: ",".join(values) for name, values in known.items() if values}
