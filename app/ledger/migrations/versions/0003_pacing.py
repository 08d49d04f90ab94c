"""Endpoints that need a pace, and deliveries parked behind them."""

from app.ledger.migrations import run

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run(revision)


def downgrade() -> None:
    raise NotImplementedError("older code works on this schema; to go back to the older one, restore a backup")
