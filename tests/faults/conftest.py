"""A running service in the hands of a fault test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.clock import clock
from tests.processes import Service, service
from tests.receivers import Receiver

__all__ = ["clock", "receiver", "running"]


@pytest.fixture
def running(engine: Engine, database_url: str, broker_url: str, tmp_path: Path) -> Iterator[Service]:
    """Starts processes; all are gone at the end."""
    with service(database_url, broker_url, tmp_path) as started:
        yield started


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()
