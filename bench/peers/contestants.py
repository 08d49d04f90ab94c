"""All that can take part, the product first."""

from collections.abc import Sequence

from app.local.up.roles import cores
from bench.peers.contestant import Contestant
from bench.peers.duehook import Duehook
from bench.peers.peer import NodePeer, PythonPeer

_CELERY = ("-m", "celery", "--app")
_QUIET = ("worker", "--loglevel", "WARNING")


def contestants() -> Sequence[Contestant]:
    """In the order of the first round."""
    return [
        Duehook(),
        PythonPeer(
            "celery-naive",
            "Celery, naive",
            "celery_naive",
            packages=["celery", "requests"],
            worker=[*_CELERY, "bench.peers.celery_naive", *_QUIET],
            count=1,  # its pool has a process for each core
            share=0.2,
        ),
        PythonPeer(
            "celery-tuned",
            "Celery, tuned",
            "celery_tuned",
            packages=["celery", "requests"],
            worker=[
                *(*_CELERY, "bench.peers.celery_tuned", *_QUIET, "--hostname", "worker{place}@%h"),
                *("--concurrency", "2", "--without-gossip", "--without-mingle"),
            ],
            count=cores(),
            share=0.4,
        ),
        PythonPeer(
            "dramatiq",
            "dramatiq",
            "dramatiq_threads",
            packages=["dramatiq", "requests"],
            worker=["-m", "dramatiq", "bench.peers.dramatiq_threads", "--processes", str(cores()), "--threads", "8"],
            count=1,  # it starts the processes
            share=0.4,
        ),
        PythonPeer(
            "procrastinate",
            "procrastinate",
            "procrastinate_async",
            packages=["procrastinate", "aiohttp"],
            worker=["-m", "bench.peers.procrastinate_async", "work"],
            count=cores(),
            share=0.3,
            arguments=["produce"],
            preparation=["prepare"],
        ),
        NodePeer("bullmq", "BullMQ", "bullmq", has_tables=False),
        NodePeer("graphile-worker", "graphile-worker", "graphile-worker", has_tables=True),
        NodePeer("pg-boss", "pg-boss", "pg-boss", has_tables=True),
    ]
