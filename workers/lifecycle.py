"""When a Celery process begins and ends, so do its connections, its threads and its engine."""

from celery import Celery
from celery.signals import beat_init, setup_logging, worker_init, worker_ready, worker_shutdown

from app.runtime import open_runtime
from app.settings import Settings
from workers.host import Host
from workers.tasks import register

POOL_SIZE = 12  # connections of one worker: its task threads, its timers, its recorder, its clock


def prepare_worker(celery: Celery, settings: Settings, lanes: str) -> None:
    """Open the ledger and register the tasks; raises `SettingsError` when this process does not fit the ledger."""
    runtime = open_runtime(settings, application_name=f"duehook worker {lanes}", pool_size=POOL_SIZE)
    host = Host(runtime)
    register(celery, host)
    setup_logging.connect(_keep_our_logging, weak=False)
    worker_init.connect(lambda **_: host.start(), weak=False)
    worker_ready.connect(lambda **_: settings.tell_ready(), weak=False)
    worker_shutdown.connect(lambda **_: host.stop(), weak=False)


def prepare_beat(celery: Celery, settings: Settings) -> None:
    """Beat only publishes; it needs no ledger."""
    setup_logging.connect(_keep_our_logging, weak=False)
    beat_init.connect(lambda **_: settings.tell_ready(), weak=False)


def _keep_our_logging(**_: object) -> None:
    """A receiver of this signal keeps Celery from configuring logging itself."""
