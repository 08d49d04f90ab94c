"""The tasks, as thin as they can be: ids in, the core does the rest."""

from collections.abc import Sequence
from functools import partial

from celery import Celery
from sqlalchemy import Engine

from app.broker import AUDIT, TASK
from app.core.poison import Keeper, raised_by
from app.domain.wakeups import LANE, Kind, Lane
from workers.consumer import Consumer
from workers.host import Host


def register(celery: Celery, host: Host, engine: Engine) -> None:
    """Give `celery` its tasks, and the consumer that keeps what is none in `engine`'s ledger.

    Their names are fixed: they outlive the code's layout in queues and dashboards.
    """
    for kind, name in TASK.items():
        celery.task(_wake(host, kind, engine), name=name, bind=False, shared=False)
    celery.task(_audit(host, engine), name=AUDIT, bind=False, shared=False)
    celery.conf.worker_consumer = partial(Consumer, keeper=Keeper(engine))


def _wake(host: Host, kind: Kind, engine: Engine):  # type: ignore[no-untyped-def]
    def wake(ids: Sequence[int], dues: Sequence[int]) -> None:
        with raised_by(engine, LANE[kind], TASK[kind], [ids, dues]):
            host.wake(kind, ids, dues)

    return wake


def _audit(host: Host, engine: Engine):  # type: ignore[no-untyped-def]
    def audit() -> dict[str, int]:
        with raised_by(engine, Lane.UPKEEP, AUDIT, []):
            return host.audit()

    return audit
