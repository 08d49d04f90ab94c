"""The broker as a command sees it."""

from dataclasses import dataclass
from typing import Any

from app.local.errors import LocalServiceError
from app.local.reach import check_broker
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Broker:
    """`error` is why it can't be used; one that is not set is no error where nobody needs it."""

    reachable: bool
    error: str | None = None
    needed: bool = True

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {"reachable": self.reachable, "error": self.error}

    def line(self) -> str:
        """For people."""
        state = "reachable" if self.reachable else self.error or "none"
        return state if self.needed else f"{state} (not needed: the scan has all the work)"


def look(settings: Settings, *, needed: bool) -> Broker:
    """Whether it answers; `needed` says whether any work goes through it."""
    if settings.broker_url is None:
        return Broker(False, "DUEHOOK_BROKER_URL is not set" if needed else None, needed)
    try:
        check_broker(settings.broker_url.get_secret_value())
    except LocalServiceError as error:
        return Broker(False, str(error), needed)
    return Broker(True, None, needed)
