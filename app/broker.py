"""Celery on Redis: the queues that wake-ups travel in, and each setting with its reason.

A wake-up names ids and when they are due, nothing else. Losing one, getting one twice or early costs lateness and
nothing more: the ledger decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from amqp.exceptions import AMQPError
from celery import Celery
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from app.domain.wakeups import Kind, Lane
from app.settings import RESTORE_INTERVAL, Settings, SettingsError

PREFIX = "duehook:"
TASK = {
    Kind.RESERVATION: "duehook.expire",
    Kind.EVENT: "duehook.fan_out",
    Kind.DELIVERY: "duehook.deliver",
    Kind.ENDPOINT: "duehook.attend",
    Kind.JOB: "duehook.advance_job",
}
AUDIT = "duehook.audit"


def is_redis(url: str) -> bool:
    """Whether this broker is Redis; the other kind is AMQP, which RabbitMQ speaks."""
    return url.startswith(("redis://", "rediss://"))


def answers(url: str, patience: float) -> bool:
    """Whether the broker can be used, found out within about `patience` seconds."""
    try:
        if is_redis(url):
            with Redis.from_url(
                url, socket_timeout=patience, socket_connect_timeout=patience, retry=Retry(NoBackoff(), 0)
            ) as client:
                client.ping()
        else:
            with Connection(url, connect_timeout=patience) as connection:
                connection.connect()
    except (RedisError, AMQPError, OSError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class Store:
    """What a Redis says of itself: bytes it uses, keys it has thrown away for want of memory, messages that wait."""

    used_bytes: int
    evicted_keys: int
    waiting: Mapping[Lane, int]
    held: int  # messages that workers hold: an ETA, or work in progress


def store(url: str, patience: float) -> Store | None:
    """How a broker that is Redis stands, within about `patience` seconds; None when it does not answer."""
    try:
        with Redis.from_url(
            url, socket_timeout=patience, socket_connect_timeout=patience, retry=Retry(NoBackoff(), 0)
        ) as client:
            asked = client.pipeline(transaction=False)
            asked.info("memory")
            asked.info("stats")
            asked.hlen(f"{PREFIX}unacked")
            for lane in Lane:
                asked.llen(f"{PREFIX}{lane.value}")
            memory, stats, held, *waiting = asked.execute()
    except (RedisError, OSError):
        return None
    return Store(memory["used_memory"], stats["evicted_keys"], dict(zip(Lane, waiting, strict=True)), held)


def make_celery(settings: Settings) -> Celery:
    """The Celery application of every process that publishes, consumes or watches; it connects when first used.

    All must load the same: the shortest visibility timeout among the programs on one Redis wins.
    """
    if settings.broker_url is None:
        raise SettingsError("DUEHOOK_BROKER_URL is not set; set it, or start everything with `duehook up`")
    url = settings.broker_url.get_secret_value()
    celery = Celery("duehook", broker=url, set_as_current=False)
    celery.conf.update(_settings(settings, url))
    return celery


_AMQP = {
    "confirm_publish": True,  # without it a message is published when it has left this process
    "read_timeout": 15,  # the default waits for ever on a frozen broker, or one that blocks publishers
    "write_timeout": 15,
}


def _redis(settings: Settings) -> dict[str, object]:
    return {
        # A wake-up that a dead worker held is redelivered after this; it is longer than any is held.
        "visibility_timeout": settings.visibility_timeout_seconds,
        # The default looks for abandoned messages every 100 s and a dead sweeper blocks it for 300 s.
        "unacked_restore_interval": RESTORE_INTERVAL,
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": 30,
        "global_keyprefix": PREFIX,  # another program's visibility timeout and keys stay its own
        # The default waits for ever on a frozen Redis. retry_on_timeout stays off: it would push twice, and
        # switch the pipelined publishing off.
        "socket_timeout": 15,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 25,
        "max_connections": 20,
    }


def _settings(settings: Settings, url: str) -> dict[str, object]:
    return {
        "broker_transport_options": _redis(settings) if is_redis(url) else _AMQP,
        "broker_connection_retry_on_startup": True,  # start order does not matter
        "broker_connection_max_retries": None,  # 100 would end the worker after a long outage
        "broker_heartbeat": 30,  # AMQP: a connection that a firewall forgot is noticed
        "worker_detect_quorum_queues": False,  # ours are durable classic ones: their ETA is ours to hold
        "broker_channel_error_retry": True,  # READONLY and OOM replies must not kill a worker
        "broker_pool_acquire_timeout": 10,
        # The ledger is the retry: a publish that fails says so at once, and its rows come up again.
        "task_publish_retry": False,
        "result_backend": None,
        "task_ignore_result": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "enable_utc": True,
        "timezone": "UTC",
        # Acknowledged after the ids are claimed, answered, or on a timer whose outbox rows come up again.
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,  # acks_late alone drops the task when a child dies
        "worker_prefetch_multiplier": 1,  # a message that waits in one worker could run in another
        "worker_send_task_events": True,  # Flower
        "task_send_sent_event": False,  # a metric series per publishing process
        "worker_hijack_root_logger": False,
        "worker_enable_remote_control": True,
        "worker_disable_rate_limits": True,  # one control message could stop a lane, and nothing would say so
        "task_create_missing_queues": False,
        "task_default_queue": Lane.UPKEEP,
        "task_queues": [Queue(lane.value, Exchange(lane.value), routing_key=lane.value) for lane in Lane],
        "beat_scheduler": "workers.beat:Sweeps",  # its schedule is code; nothing to keep in a file
        "beat_max_loop_interval": 5,
        "beat_schedule": {
            "audit": {
                "task": AUDIT,
                "schedule": settings.sweep_seconds,
                "options": {"queue": Lane.UPKEEP},
            }
        },
    }


def wake(
    celery: Celery,
    producer: object,
    kind: Kind,
    lane: Lane,
    ids: Sequence[int],
    dues: Sequence[datetime],
    eta: datetime | None,
) -> None:
    """Publish one wake-up. Inside `producer.batch()` nothing has been sent until the block has ended."""
    celery.send_task(
        TASK[kind],
        args=[list(ids), [_microseconds(due) for due in dues]],
        eta=eta,
        queue=lane.value,
        producer=producer,
        retry=False,
        argsrepr=repr(list(ids)[:5]),
        kwargsrepr="{}",
    )


def _microseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)
