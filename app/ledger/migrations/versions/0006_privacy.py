"""The audit log, and the erasure of events and of whole tenants."""

from app.ledger.migrations import run

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    run(revision)


def downgrade() -> None:
    raise NotImplementedError("older code works on this schema; to go back to the older one, restore a backup")
