"""`duehook worker|beat|flower`: one process of Celery each."""

import os
import sys

from app import settings as settings_of
from app.broker import make_celery
from app.domain.wakeups import Lane
from app.logs import configure
from app.settings import Settings, SettingsError
from workers.lifecycle import prepare_beat, prepare_worker

THREADS = 4  # a task waits for room in the engine, so a few are enough; the engine itself is one loop


def main(arguments: list[str]) -> int:
    role, *rest = arguments
    try:
        settings = settings_of.load()
        configure(settings)
        match role:
            case "worker":
                return worker(settings, rest)
            case "beat":
                return beat(settings)
            case "flower":
                return flower(settings)
            case _:
                raise SettingsError(f"{role!r} is not a role: use worker, beat or flower")
    except SettingsError as error:
        print(f"duehook {role}: {error}", file=sys.stderr)
        return 1


def worker(settings: Settings, lanes: list[str]) -> int:
    """Consume the given lanes, or all of them, until told to stop."""
    for lane in lanes:
        if lane not in list(Lane):
            raise SettingsError(f"{lane!r} is not a lane: use {', '.join(Lane)}")
    queues = lanes or [lane.value for lane in Lane]
    celery = make_celery(settings)
    prepare_worker(celery, settings, "-".join(queues))
    name = f"{'-'.join(lanes) or 'all'}-{os.getpid()}@%h"
    options = f"-P threads -c {THREADS} -E --without-gossip --without-mingle -l {settings.log_level}"
    celery.worker_main(["worker", "-Q", ",".join(queues), "-n", name, *options.split()])
    return 0


def beat(settings: Settings) -> int:
    """Send the sweeps, until told to stop; two at once are harmless."""
    celery = make_celery(settings)
    prepare_beat(celery, settings)
    celery.Beat(loglevel=settings.log_level).run()
    return 0


def flower(settings: Settings) -> int:
    """Show workers, tasks and queues at the API's host, to those who know the login; until told to stop."""
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
    return 0


sys.exit(main(sys.argv[1:]))
