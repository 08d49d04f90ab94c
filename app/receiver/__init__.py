"""What a program that receives imports: verify, then reserve a receipt and apply the effect in one transaction.

An event reaches a receiver at least once: after a time-out, a crash or a replay it comes again under the same
`webhook-id`. The receipt, unique by that id, makes its effect happen once.

    create_table(connection)  # once, or put `ddl()` into your migrations

    try:
        receipt = receive(connection, request.headers, request.body, secrets, apply)
    except UnverifiedError:
        return 401
    return 200  # the first time and every other time

Connections: psycopg's, sqlite3's, SQLAlchemy's (its sessions, too) and Django's. There is no order between deliveries:
`apply` goes by the event's key and by the version or timestamp in it. docs/receivers.md has complete receivers.
"""

from app.receiver.receipts import Receipt, create_table, ddl, prune, receive
from app.receiver.verification import Event, UnverifiedError, verify

__all__ = ["Event", "Receipt", "UnverifiedError", "create_table", "ddl", "prune", "receive", "verify"]
