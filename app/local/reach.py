"""Whether servers that we were given URLs of can be used at all, found out before anything relies on them."""

from urllib.parse import urlsplit

import psycopg
import redis
from amqp.exceptions import AMQPError
from kombu.connection import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.local.errors import LocalServiceError

PATIENCE = 5  # seconds; a firewall that swallows packets would keep a start waiting for minutes


def check_database(url: str) -> None:
    """Raises LocalServiceError unless PostgreSQL answers there; `postgresql+psycopg://` is taken too."""
    unreadable = _unreadable("DUEHOOK_DATABASE_URL", "postgresql://user:password@host:port/database")
    if not _has_its_password_in_place(url):
        raise unreadable
    try:
        options = conninfo_to_dict(url.replace("postgresql+psycopg://", "postgresql://", 1))
    except psycopg.ProgrammingError:
        raise unreadable from None  # the cause's message repeats pieces of the URL
    try:
        psycopg.connect(make_conninfo("", **options, connect_timeout=PATIENCE)).close()
    except psycopg.OperationalError as error:
        place = f"{options.get('host', 'localhost')}:{options.get('port', 5432)}"
        raise _unusable("PostgreSQL", place, error, "DUEHOOK_DATABASE_URL") from error


def check_broker(url: str) -> None:
    """Raises LocalServiceError unless Redis, or RabbitMQ where the URL is `amqp://`, answers there."""
    if url.startswith(("amqp://", "amqps://")):
        _check_rabbitmq(url)
    else:
        _check_redis(url)


def _check_rabbitmq(url: str) -> None:
    if not _has_its_password_in_place(url):
        raise _unreadable("DUEHOOK_BROKER_URL", "amqp://user:password@host:port/vhost")
    connection = Connection(url, connect_timeout=PATIENCE)
    try:
        connection.connect()
    except (AMQPError, OSError) as error:
        place = f"{connection.hostname}:{connection.port or 5672}"
        raise _unusable("RabbitMQ", place, error, "DUEHOOK_BROKER_URL") from error
    finally:
        connection.release()


def _check_redis(url: str) -> None:
    unreadable = _unreadable("DUEHOOK_BROKER_URL", "redis://:password@host:port/0")
    if not _has_its_password_in_place(url):
        raise unreadable
    try:
        client = redis.Redis.from_url(
            url, socket_connect_timeout=PATIENCE, socket_timeout=PATIENCE, retry=Retry(NoBackoff(), 0)
        )
    except ValueError:
        raise unreadable from None  # the cause's message repeats pieces of the URL
    options = client.connection_pool.connection_kwargs
    try:
        client.ping()
    except redis.RedisError as error:
        place = f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        raise _unusable("Redis", place, error, "DUEHOOK_BROKER_URL") from error
    finally:
        client.close()


def _has_its_password_in_place(url: str) -> bool:
    """An unescaped `@`, `/`, `?` or `#` in a password makes its rest a host or a port, and errors name those."""
    return "@" not in url or (url.count("@") == 1 and "@" in urlsplit(url).netloc)


def _unreadable(setting: str, form: str) -> LocalServiceError:
    return LocalServiceError(
        f"{setting} can't be read: write it as {form}, with @ / ? # in the password written as %40 %2F %3F %23."
    )


def _unusable(title: str, place: str, error: Exception, setting: str) -> LocalServiceError:
    return LocalServiceError(
        f"{title} at {place} can't be used ({' '.join(str(error).split())}): "
        f"start it, correct {setting}, or unset it to get an embedded one."
    )
