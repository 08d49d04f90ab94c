"""Roles for the service's own programs, each with the rights that it uses and no others."""

from app.ledger.migrations import run

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    run(revision)


def downgrade() -> None:
    raise NotImplementedError("older code works on this schema; to go back to the older one, restore a backup")
