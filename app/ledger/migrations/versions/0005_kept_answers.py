"""Answers that are kept for a day, so that a request that is sent again has one effect."""

from app.ledger.migrations import run

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    run(revision)


def downgrade() -> None:
    raise NotImplementedError("older code works on this schema; to go back to the older one, restore a backup")
