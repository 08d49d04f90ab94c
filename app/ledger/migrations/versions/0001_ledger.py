"""The ledger: time, outbox, reservations, endpoints, deliveries, events, access."""

from app.ledger.migrations import run

revision = "0001"
down_revision = None


def upgrade() -> None:
    run(revision)


def downgrade() -> None:
    raise NotImplementedError("the first schema has nothing before it; restore a backup instead")
