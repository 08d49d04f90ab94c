"""How often and how fast a call is tried again."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retries:
    """At most so many `tries` within so many `seconds`, each of at most `timeout` seconds from DNS to the last byte.

    The wait before try n + 1 is drawn from 0 to `first` * 2^(n-1), at most `longest`, so that those who failed
    together don't come again together. A Retry-After is added to it; one that leads beyond `seconds` ends the call.
    ValueError for what can't be.
    """

    tries: int = 6
    seconds: float = 60.0
    timeout: float = 20.0
    first: float = 0.2
    longest: float = 10.0

    def __post_init__(self) -> None:
        if self.tries < 1 or not (self.seconds > 0 < self.timeout) or not (self.first >= 0 <= self.longest):
            raise ValueError("retries need one try or more, seconds and a timeout above 0, and waits not below it")

    def wait(self, tried: int, hint: float) -> float:
        """Seconds until the next try, after so many; `hint` is what the service asked for."""
        return hint + random.uniform(0, min(self.longest, self.first * 2.0 ** min(tried - 1, 60)))
