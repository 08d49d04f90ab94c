"""`duehook worker|beat|flower`, one process of Celery each, and `duehook scan`, which loads none of it."""

import os
import sys

from app.domain.wakeups import Lane
from app.process import begin, end
from app.settings import Settings, SettingsError
from workers.scan import scan


def main(role: str, *lanes: str) -> None:
    """Run until told to stop; one sentence and exit code 1 when the settings say that it can't."""
    settings = begin(role)
    try:
        match role:
            case "worker":
                worker(settings, list(lanes))
            case "scan":
                scan(settings)
            case "beat":
                beat(settings)
            case "flower":
                flower(settings)
            case _:
                raise SettingsError(f"{role!r} is not a role: use worker, scan, beat or flower")
    except SettingsError as error:
        end(role, error)


def worker(settings: Settings, lanes: list[str]) -> None:
    """Consume the given lanes, or all of them, until told to stop."""
    from app.broker import make_celery
    from workers.lifecycle import run_worker

    for lane in lanes:
        if lane not in list(Lane):
            raise SettingsError(f"{lane!r} is not a lane: use {', '.join(Lane)}")
    queues = lanes or [lane.value for lane in Lane]
    celery = make_celery(settings)
    name = f"{'-'.join(lanes) or 'all'}-{os.getpid()}@%h"
    # One for each lane and one more: a task may wait a moment, and each is as many ids ahead of what falls due.
    options = f"-P threads -c {len(queues) + 1} -E --without-gossip --without-mingle -l {settings.log_level}"
    run_worker(celery, settings, queues, ["-Q", ",".join(queues), "-n", name, *options.split()])


def beat(settings: Settings) -> None:
    """Send the sweeps, until told to stop; two at once are harmless."""
    from app.broker import make_celery
    from workers.lifecycle import prepare_beat

    celery = make_celery(settings)
    prepare_beat(celery, settings)
    celery.Beat(loglevel=settings.log_level).run()


def flower(settings: Settings) -> None:
    """Show workers, tasks and queues at the API's host, to those who know the login; until told to stop."""
    from app.broker import make_celery

    if settings.flower_login is None:
        raise SettingsError("DUEHOOK_FLOWER_LOGIN is not set; set it to user:password, or anybody could stop workers")
    celery = make_celery(settings)
    celery.start(
        [
            "flower",
            f"--address={settings.api_host}",
            f"--port={settings.flower_port}",
            f"--basic-auth={settings.flower_login.get_secret_value()}",  # in this process alone: no argv shows it
            "--max-tasks=5000",  # the ledger is the history
            "--purge-offline-workers=300",  # a metric series for each worker that ever was, otherwise
            "--persistent=false",
        ]
    )


main(*sys.argv[1:])
