"""The ledger: time, outbox, reservations, endpoints, deliveries, events, access."""

from importlib import resources

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    folder = resources.files("app.ledger.migrations") / "sql" / revision
    for part in sorted(folder.iterdir(), key=lambda file: file.name):
        # The driver's own connection: SQLAlchemy would take each % for a placeholder.
        op.get_bind().connection.cursor().execute(part.read_text(encoding="utf-8"))


def downgrade() -> None:
    raise NotImplementedError("the first schema has nothing before it; restore a backup instead")
