"""The tasks, as thin as they can be: ids in, the core does the rest."""

from collections.abc import Sequence

from celery import Celery

from app.broker import AUDIT, TASK
from app.domain.wakeups import Kind
from workers.host import Host


def register(celery: Celery, host: Host) -> None:
    """Give `celery` its tasks. Their names are fixed: they outlive the code's layout in queues and dashboards."""
    for kind, name in TASK.items():
        celery.task(_wake(host, kind), name=name, bind=False)
    celery.task(host.audit, name=AUDIT, bind=False)


def _wake(host: Host, kind: Kind):  # type: ignore[no-untyped-def]
    def wake(ids: Sequence[int], dues: Sequence[int]) -> None:
        host.wake(kind, ids, dues)

    return wake
