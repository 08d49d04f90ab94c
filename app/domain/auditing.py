"""What the audit log tells of: every change that somebody made through the API, the command line or the pages."""

from enum import StrEnum


class Action(StrEnum):
    """What was done, as `thing.done`; the subject is the thing's id."""

    KEY_CREATED = "key.created"
    KEY_REVOKED = "key.revoked"
    SQL_GRANTED = "sql.granted"
    SQL_REVOKED = "sql.revoked"
    KEYS_REENCRYPTED = "keys.reencrypted"
    ENDPOINT_CREATED = "endpoint.created"
    ENDPOINT_CHANGED = "endpoint.changed"
    ENDPOINT_DELETED = "endpoint.deleted"
    ENDPOINT_ENABLED = "endpoint.enabled"
    ENDPOINT_DISABLED = "endpoint.disabled"
    ENDPOINT_PINGED = "endpoint.pinged"
    ENDPOINT_REPLAYED = "endpoint.replayed"
    SECRET_READ = "secret.read"
    SECRET_ROTATED = "secret.rotated"
    EVENT_CANCELLED = "event.cancelled"
    EVENT_ERASURE_ASKED = "event.erasure_asked"
    EVENT_ERASED = "event.erased"
    DELIVERY_RETRIED = "delivery.retried"
    DELIVERY_CANCELLED = "delivery.cancelled"
    DELIVERY_REDRIVEN = "delivery.redriven"
    REDRIVE_ASKED = "redrive.asked"
    JOB_CANCELLED = "job.cancelled"
    TENANT_ERASURE_ASKED = "tenant.erasure_asked"
    TENANT_ERASED = "tenant.erased"
    WAKEUPS_DIVIDED = "wakeups.divided"
