"""Wake-ups by queue and by scan, a fair window, upkeep that tells what it did."""

from app.ledger.migrations import run

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run(revision)


def downgrade() -> None:
    raise NotImplementedError("older code works on this schema; to go back to the older one, restore a backup")
