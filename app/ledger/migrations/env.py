"""Alembic's entry; the transaction and its lock are `app.ledger.migrate`'s."""

from alembic import context

from app.ledger.version import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], version_table=VERSION_TABLE, version_table_schema="duehook"
)
with context.begin_transaction():
    context.run_migrations()
