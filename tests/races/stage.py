"""A database of a few rows that is put back as it was before each order, and audited whole after each."""

from datetime import timedelta

import psycopg
from sqlalchemy import Engine

from app.ledger.database import connect_engine
from tests.clock import Clock
from tests.invariants import VIOLATIONS

# Triggers don't fire for a replica: the rows come back as they were, and nothing else happens.
_TABLES = """
    SELECT c.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
     WHERE c.relnamespace = 'duehook'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
       AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
     GROUP BY c.relname"""
_AUDIT = "\nUNION ALL ".join(
    f"SELECT '{name}', array_agg(broken::text) FROM ({query}) AS q(broken) HAVING count(*) > 0"
    for name, query in ((name.replace("'", "''"), query) for name, query in VIOLATIONS.items())
)


class Stage:
    """The database with its clock in our hand; `engine` is for what builds a scene and looks at what came of it."""

    def __init__(self, database_url: str) -> None:
        self.database_url = database_url
        self._own = psycopg.connect(database_url, autocommit=True)
        # A ring of waiting actors is broken at once; PostgreSQL's own second would be most of the time.
        self._own.execute(f"ALTER DATABASE {self._own.info.dbname} SET deadlock_timeout = '5ms'")
        for setting in ("plan_cache_mode = force_generic_plan", "jit = off"):
            self._own.execute(f"SET {setting}")
        self.clock = Clock(self._own)
        self.engine: Engine = connect_engine(database_url, application_name="stage", pool_size=1)

    def photograph(self) -> None:
        """Remember all rows as they are now, for `put_back`."""
        tables = self._own.execute(_TABLES).fetchall()
        self._own.execute("DROP SCHEMA IF EXISTS photograph CASCADE; CREATE SCHEMA photograph")
        lines = []
        for table, columns in tables:
            self._own.execute(f"CREATE TABLE photograph.{table} AS SELECT {columns} FROM duehook.{table}")
            lines.append(f"DELETE FROM duehook.{table};")
            if self._own.execute(f"SELECT FROM photograph.{table} LIMIT 1").rowcount:
                lines.append(
                    f"INSERT INTO duehook.{table} ({columns}) OVERRIDING SYSTEM VALUE"
                    f" SELECT {columns} FROM photograph.{table};"
                )
        self._own.execute(
            "CREATE FUNCTION photograph.put_back() RETURNS void LANGUAGE plpgsql SET session_replication_role = replica"
            f" AS $$ BEGIN {' '.join(lines)} END $$"
        )

    def put_back(self) -> None:
        """All rows as the photograph has them."""
        self._own.execute("SELECT photograph.put_back()", prepare=True)

    def pass_time(self, **delta: float) -> None:
        """Until the next `put_back` the database's clock is so much later."""
        self._own.execute("UPDATE duehook.test_clock SET at = at + %s", [timedelta(**delta)])

    def break_(self, statement: str) -> None:
        """Do what no trigger would let happen."""
        with self._own.transaction():
            self._own.execute("SET LOCAL session_replication_role = replica")
            self._own.execute(statement)

    def audit(self) -> None:
        """Fails with every broken invariant and whom it concerns."""
        broken = self._own.execute(_AUDIT, prepare=True).fetchall()
        assert not broken, f"broken invariants: {dict(broken)}"

    def close(self) -> None:
        self.engine.dispose()
        self._own.close()
