"""Events and what came of them in one statement."""

from app.ledger.migrations import run

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    run(revision)


def downgrade() -> None:
    raise NotImplementedError("older code works on this schema; to go back to the older one, restore a backup")
