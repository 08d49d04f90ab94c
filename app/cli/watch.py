"""Broker and workers as a command sees them."""

from dataclasses import dataclass
from typing import Any

from kombu.exceptions import KombuError

from app.broker import make_celery
from app.local.errors import LocalServiceError
from app.local.reach import check_broker
from app.settings import Settings

PATIENCE = 1.0  # seconds that workers have for an answer


@dataclass(frozen=True, slots=True)
class Watched:
    """`error` is why the broker can't be used; `workers` the names that answered, None when nobody could be asked."""

    error: str | None
    workers: list[str] | None

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {"broker": {"reachable": self.error is None, "error": self.error}, "workers": self.workers}

    def lines(self) -> dict[str, str]:
        """For people."""
        names = "unknown" if self.workers is None else ", ".join(self.workers) or "none answers"
        return {"broker": self.error or "reachable", "workers": names}


def look(settings: Settings) -> Watched:
    """Ask every worker over the broker whether it is there."""
    if settings.broker_url is None:
        return Watched("DUEHOOK_BROKER_URL is not set", None)
    try:
        check_broker(settings.broker_url.get_secret_value())
        answers = make_celery(settings).control.ping(timeout=PATIENCE)
    except LocalServiceError as error:
        return Watched(str(error), None)
    except KombuError:
        return Watched("Redis went away while the workers were asked", None)
    return Watched(None, sorted(name for answer in answers for name in answer))
