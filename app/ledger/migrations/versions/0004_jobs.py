"""Long work as jobs: redrive and replay, in steps that can be killed between any two."""

from app.ledger.migrations import run

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run(revision)


def downgrade() -> None:
    raise NotImplementedError("older code works on this schema; to go back to the older one, restore a backup")
