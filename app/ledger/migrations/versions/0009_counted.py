"""What processes have counted."""

from app.ledger.migrations import run

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    run(revision)


def downgrade() -> None:
    raise NotImplementedError("older code works on this schema; to go back to the older one, restore a backup")
