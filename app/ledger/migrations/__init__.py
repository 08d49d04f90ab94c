"""The steps that brought the schema here: what a version changes is SQL, under `sql/`."""

from importlib import resources

from alembic import op


def run(revision: str) -> None:
    """Run the parts of a version in the order of their names."""
    folder = resources.files("app.ledger.migrations") / "sql" / revision
    for part in sorted(folder.iterdir(), key=lambda file: file.name):
        # The driver's own connection: SQLAlchemy would take each % for a placeholder.
        op.get_bind().connection.cursor().execute(part.read_text(encoding="utf-8"))
