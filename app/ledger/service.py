"""What the ledger knows of the service as a whole: its version, its keys, its horizon."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from app.ledger.version import VERSION_TABLE, current_version


class UnfitError(Exception):
    """This process and the ledger don't fit together; the message is one sentence that says what to change."""


_VERSION_TABLE = text("/* service.version_table */ SELECT to_regclass(:name) IS NOT NULL")
_VERSION = text(f"/* service.version */ SELECT version_num FROM duehook.{VERSION_TABLE}")


def check_schema(connection: Connection) -> None:
    """Raise `UnfitError` when the schema is missing or older than this code; a newer one is taken, while rolling."""
    found = connection.execute(_VERSION_TABLE, {"name": f"duehook.{VERSION_TABLE}"}).scalar_one()
    version = connection.execute(_VERSION).scalar_one_or_none() if found else None
    if version is None:
        raise UnfitError("the database has no duehook schema yet: run `duehook migrate`")
    if version < current_version():
        raise UnfitError(
            f"the schema is at version {version}, this duehook needs {current_version()}: run `duehook migrate`"
        )


_KEYS = text("""/* service.keys */
    UPDATE duehook.service SET key_fingerprint = coalesce(key_fingerprint, :first) RETURNING key_fingerprint""")


def check_keys(connection: Connection, fingerprints: Sequence[str]) -> None:
    """Raise `UnfitError` unless one of our keys is the ledger's; the first process ever decides which that is."""
    known = connection.execute(_KEYS, {"first": fingerprints[0]}).scalar_one()
    if known not in fingerprints:
        raise UnfitError(
            "DUEHOOK_SECRETS_KEY holds none of the keys that this database's secrets are sealed under:"
            f" set the key with the fingerprint {known}"
        )


_MOVE_KEY = text("""/* service.move_key */
    UPDATE duehook.service SET key_fingerprint = :first
     WHERE key_fingerprint <> :first AND key_fingerprint = ANY (CAST(:ours AS text[]))""")


def move_key(connection: Connection, fingerprints: Sequence[str]) -> bool:
    """Make our first key the one that every process must have from now on; whether it was another of ours."""
    parameters = {"first": fingerprints[0], "ours": list(fingerprints)}
    return connection.execute(_MOVE_KEY, parameters).rowcount == 1


_UPDATE = text("""/* service.update */
    UPDATE duehook.service SET horizon = :horizon, max_event_bytes = :max_event_bytes, max_age = :max_age
     WHERE (horizon, max_event_bytes, max_age) IS DISTINCT FROM (:horizon, :max_event_bytes, :max_age)""")


def update(connection: Connection, *, horizon: timedelta, max_event_bytes: int, max_age: timedelta) -> None:
    """Tell the triggers the settings that they work by; every process that starts does."""
    connection.execute(_UPDATE, {"horizon": horizon, "max_event_bytes": max_event_bytes, "max_age": max_age})


_SCAN_SHARE = text("/* service.scan_share */ SELECT scan_share FROM duehook.service")


def scan_share(connection: Connection) -> int:
    """The per cent of the work that the scan adapter notices; the queue notices the rest."""
    share = connection.execute(_SCAN_SHARE).scalar_one()
    assert isinstance(share, int)
    return share


_SET_SCAN_SHARE = text("/* service.set_scan_share */ UPDATE duehook.service SET scan_share = :share")


def set_scan_share(connection: Connection, share: int) -> None:
    """Divide the work anew, 0 to 100; every process follows within a second or two."""
    connection.execute(_SET_SCAN_SHARE, {"share": share})


_BROKER_EPOCH = text("/* service.broker_epoch */ SELECT broker_epoch FROM duehook.service")


def broker_epoch(connection: Connection) -> str | None:
    """The life of the broker that the published wake-ups are in; None before the first."""
    epoch = connection.execute(_BROKER_EPOCH).scalar_one()
    assert epoch is None or isinstance(epoch, str)
    return epoch


_SET_BROKER_EPOCH = text("/* service.set_broker_epoch */ UPDATE duehook.service SET broker_epoch = :epoch")


def set_broker_epoch(connection: Connection, epoch: str) -> None:
    """Remember it for every relay, those that start later too."""
    connection.execute(_SET_BROKER_EPOCH, {"epoch": epoch})


_NOW = text("/* service.now */ SELECT duehook.now()")


def now(connection: Connection) -> datetime:
    """The ledger's clock."""
    at = connection.execute(_NOW).scalar_one()
    assert isinstance(at, datetime)
    return at
