"""Broker messages that no worker could act on."""

from enum import StrEnum

from sqlalchemy import Connection, text


class PoisonReason(StrEnum):
    """Why nobody could act on a message."""

    UNDECODABLE = "undecodable"  # not a message of Celery's, or not in JSON
    UNKNOWN = "unknown"  # names no task of ours
    MALFORMED = "malformed"  # names one, and does not say what that needs
    RAISED = "raised"  # all in order, and acting on it raised what nobody expected


_RECORD = text("""/* poison.record */
    INSERT INTO duehook.poison_messages (lane, reason, task, error, body, size, digest)
    VALUES (:lane, :reason, :task, :error, :body, :size, :digest)
    ON CONFLICT (digest) DO UPDATE
       SET seen = poison_messages.seen + 1, last_at = duehook.now(), error = excluded.error""")


def record(
    connection: Connection,
    *,
    lane: str,
    reason: PoisonReason,
    task: str | None,
    error: str,
    body: bytes,
    size: int,
    digest: bytes,
) -> None:
    """Keep one; a message of the same digest counts up instead."""
    parameters = {
        "lane": lane,
        "reason": reason.value,
        "task": task,
        "error": error,
        "body": body,
        "size": size,
        "digest": digest,
    }
    connection.execute(_RECORD, parameters)
