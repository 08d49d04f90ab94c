"""What a tenant may ask of this process: requests and events a second. See docs/decisions/0061."""

import math
import threading
import time
from collections import OrderedDict

from app.api.problems import TOO_MANY, ProblemError
from app.settings import Settings

REMEMBERED = 100_000  # tenants
ENDPOINTS_RETRY_SECONDS = 3600  # no time makes room for an endpoint, so nobody shall ask all the time


class Rate:
    """So many a second of each tenant, on average; at once as many as a second has, and at least one.

    Several together (a list of events) are taken when one would be, and what is too much is paid for after: no list is
    too long for ever, nor kept out by what comes one by one. What is kept of a tenant is one number: when all that it
    took is paid (GCRA). Of the tenants beyond `REMEMBERED` those that were heard of longest ago are forgotten, with
    what they owed.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._credit = max(0.0, per_second - 1) * self._interval
        self._paid_at: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, tenant: str, count: int = 1) -> float:
        """0 when these are taken, else after how many seconds they might be; a refusal takes nothing."""
        now = time.monotonic()
        with self._lock:
            paid_at = max(now, self._paid_at.pop(tenant, now))
            wait = max(0.0, paid_at - now - self._credit)
            self._paid_at[tenant] = paid_at if wait else paid_at + count * self._interval
            if len(self._paid_at) > REMEMBERED:
                self._paid_at.popitem(last=False)
        return wait


class Limits:
    """The limits of every tenant, as the settings say; without a setting there is none."""

    def __init__(self, settings: Settings) -> None:
        self._requests = _rate(settings.tenant_requests_per_second)
        self._events = _rate(settings.tenant_events_per_second)

    def take_request(self, tenant: str) -> None:
        """Count a request, or raise the problem that it is one too many."""
        _take(self._requests, tenant, 1, "requests")

    def take_events(self, tenant: str, count: int) -> None:
        """Count the events of a request, or raise the problem that they are too many: all or none."""
        _take(self._events, tenant, count, "events")


def too_many(detail: str, seconds: float) -> ProblemError:
    """The problem of a tenant that has reached a limit; `seconds` is when to try again."""
    return ProblemError(TOO_MANY, detail, headers={"Retry-After": str(max(1, math.ceil(seconds)))})


def _rate(per_second: float | None) -> Rate | None:
    return None if per_second is None else Rate(per_second)


def _take(rate: Rate | None, tenant: str, count: int, what: str) -> None:
    if rate is not None and (wait := rate.take(tenant, count)):
        raise too_many(f"this tenant sends too many {what} a second; send it again after the time in Retry-After", wait)
