"""Who takes part, and what a turn asks of them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.local.services import LocalServices
from bench.receiver import Receiver


@dataclass(frozen=True, slots=True)
class Ground:
    """What everybody stands on: a folder of their own, a database of their own and an empty Redis, and the sink."""

    home: Path
    services: LocalServices
    database_url: str
    receiver: Receiver
    endpoints: int


class Running(Protocol):
    """A contestant whose workers run. `kinds` of its processes are `workers`, `producer`, and maybe `relay`."""

    def cpu(self) -> Mapping[str, float]:
        """CPU seconds so far by kind of process."""

    def hold(self) -> None:
        """Nothing is sent until `release`, so that it costs nothing while a backlog is handed in."""

    def release(self) -> None:
        """Go on."""

    def enqueue(self, number: int) -> Collection[str]:
        """Hand in so many deliveries in bulk; their ids, once they are as safe as they get."""


class Contestant(ABC):
    """`share` of the plan's deliveries is what it can send in about the window: a backlog should have an end."""

    name: str
    title: str
    share: float = 1.0

    @property
    @abstractmethod
    def lacking(self) -> str:
        """What isn't installed, and how to install it, the end of a sentence; empty when it can take part."""

    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Of its parts."""

    @abstractmethod
    def running(self, ground: Ground) -> AbstractContextManager[Running]:
        """Inside the block its workers run; afterwards nothing does. Raises LocalServiceError when they don't."""
