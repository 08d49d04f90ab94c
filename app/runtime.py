"""The one place where settings, database, keys and sender are put together for a process."""

import sys
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from app.core.clock import LedgerClock
from app.core.deliveries import Terms
from app.core.dispatch import Dispatcher
from app.core.requests import Requests
from app.domain.proxies import parse_proxy
from app.domain.urls import Unacceptable
from app.ledger import service
from app.ledger.database import SESSION, connect_engine
from app.ledger.outbox import LONGEST_PUBLISH_LEASE
from app.ledger.reconciliation import Terms as UpkeepTerms
from app.ledger.sealing import Sealer
from app.sending.engine import Engine as Sender
from app.sending.engine import Places
from app.sending.transport import PinnedTransport
from app.settings import Settings, SettingsError

log = structlog.get_logger("duehook")
CHILD = [sys.executable, "-P", "-m", "workers.suspect"]  # a program: nothing below may import what is above


@dataclass(frozen=True, slots=True)
class Runtime:
    """What every process has: its settings, its connections, the keys to what is sealed."""

    settings: Settings
    engine: Engine
    sealer: Sealer

    def close(self) -> None:
        """Close the connections; a repeat does nothing."""
        self.engine.dispose()


def open_runtime(
    settings: Settings, *, application_name: str, pool_size: int = 5, patience: float | None = None
) -> Runtime:
    """Connect, check that this process and the ledger fit together, and tell the ledger what it has to know.

    Raises `SettingsError` with one sentence when the database can't be reached, has another schema version, or
    was used with other keys: a process with the wrong keys must not start, or it would fail every delivery.
    `patience`: seconds to wait for somebody's lock or for a connection, where a client waits for the answer.
    """
    if settings.database_url is None:
        raise SettingsError("DUEHOOK_DATABASE_URL is not set; set it, or start everything with `duehook up`")
    sealer = Sealer([key.get_secret_value() for key in settings.secrets_key] or _refuse_no_key())
    engine = connect_engine(
        settings.database_url.get_secret_value(),
        application_name=application_name,
        pool_size=pool_size,
        **({} if patience is None else _impatient(patience)),
    )
    try:
        with engine.begin() as connection:
            service.check_schema(connection)
            service.check_keys(connection, sealer.fingerprints)
            service.update(
                connection,
                horizon=settings.horizon,
                max_event_bytes=settings.max_event_bytes,
                max_age=settings.max_age,
            )
    except OperationalError as error:
        engine.dispose()
        raise SettingsError(f"the database does not answer: {_first_line(error)}") from None
    except service.UnfitError as unfit:
        engine.dispose()
        raise SettingsError(str(unfit)) from None
    return Runtime(settings, engine, sealer)


def _impatient(patience: float) -> dict[str, Any]:
    return {"session": SESSION | {"lock_timeout": f"{patience * 1000:.0f}ms"}, "pool_timeout": patience}


def _refuse_no_key() -> list[str]:
    raise SettingsError("DUEHOOK_SECRETS_KEY is not set; set it to what `openssl rand -hex 32` prints, and keep it")


def _first_line(error: OperationalError) -> str:
    return str(error.orig).strip().splitlines()[0]


def make_dispatcher(runtime: Runtime, clock: LedgerClock) -> Dispatcher:
    """The delivery side of one worker process: its places, its engine and the recorder behind it."""
    settings = runtime.settings
    places = Places(settings.max_in_flight, settings.max_in_flight_each)
    return Dispatcher(
        runtime.engine,
        clock,
        Requests(runtime.engine, runtime.sealer, places, version=version("duehook"), deadline=settings.deadline),
        lambda told: Sender(lambda: make_transport(settings), told, deadline=settings.deadline_seconds),
        places,
        Terms(settings.lease, settings.max_age),
        settings.max_retry_after,
        timedelta(days=settings.disable_after_days),
        CHILD,
    )


def make_transport(settings: Settings) -> PinnedTransport:
    """What sends as the settings say; for the event loop that it is made in."""
    proxy = settings.egress_proxy and parse_proxy(settings.egress_proxy.get_secret_value())
    assert not isinstance(proxy, Unacceptable)  # the settings have parsed it
    return PinnedTransport(
        tuple(settings.allowed_networks),
        ca_bundle=str(settings.ca_bundle) if settings.ca_bundle else None,
        proxy=proxy or None,
    )


def upkeep_terms(settings: Settings) -> UpkeepTerms:
    """What upkeep must know of the settings."""
    return UpkeepTerms(
        every=timedelta(seconds=settings.sweep_seconds),
        longest=max(LONGEST_PUBLISH_LEASE, settings.publish_lease),
        recent=min(timedelta(days=settings.retention_days), settings.max_age, UpkeepTerms().recent),
        kept=timedelta(days=settings.retention_days),
    )
