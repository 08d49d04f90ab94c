"""How each process of the service begins: settings, logs, ledger, or one sentence and exit code 1."""

import gc
import sys
from typing import NoReturn

import structlog

from app import metrics
from app import settings as settings_of
from app.logs import configure
from app.runtime import Runtime, open_runtime
from app.settings import Settings, SettingsError

log = structlog.get_logger("duehook.process")


def begin(role: str) -> Settings:
    """This process's settings, its logs set up by them; ends it with a sentence when they don't work."""
    try:
        settings = settings_of.load()
    except SettingsError as error:
        end(role, error)
    configure(settings)
    _serve_metrics(role, settings)
    return settings


def _serve_metrics(role: str, settings: Settings) -> None:
    """What this process alone has counted, for whoever can't ask the API of its host: a container has none."""
    if settings.metrics_port is None:
        return
    token = settings.metrics_token
    try:
        metrics.serve(settings.api_host, settings.metrics_port, token.get_secret_value() if token else None)
    except OSError as error:
        end(
            role,
            SettingsError(
                f"metrics can't be served on {settings.api_host} port {settings.metrics_port} ({error.strerror}):"
                " set DUEHOOK_METRICS_PORT to a free one, another for each process of a host"
            ),
        )


def begin_with_ledger(role: str, *, pool_size: int, patience: float | None = None) -> Runtime:
    """The same with the ledger opened; see `open_runtime`."""
    settings = begin(role)
    try:
        return open_runtime(settings, application_name=f"duehook {role}", pool_size=pool_size, patience=patience)
    except SettingsError as error:
        end(role, error)


def set_up() -> None:
    """What this process has made by now stays: the garbage collector needs not look at it again.

    A full collection looks at everything, modules included, and stopped every thread for up to 0.3 s.
    """
    gc.collect()
    gc.freeze()
    log.info("set_up", kept=gc.get_freeze_count())


def end(role: str, error: SettingsError) -> NoReturn:
    """Exit code 1, and the sentence for whoever started this."""
    print(f"duehook {role}: {error}", file=sys.stderr)
    sys.exit(1)
