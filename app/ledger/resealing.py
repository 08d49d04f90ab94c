"""What is stored sealed, walked by key and sealed anew: header values and signing secrets.

Nothing else of a row is touched, its revision least of all: what is sent stays the same, so nobody has to read it
again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection, text


class Part(StrEnum):
    """Of an endpoint, what is sealed."""

    HEADERS = "headers"
    SECRET = "secret"


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed value by its row; `in_use` while somebody could still have to open it."""

    seq: int
    endpoint: str
    sealed: bytes
    in_use: bool


_STRETCH = {
    Part.HEADERS: text("""/* sealed.headers */
        SELECT seq, id AS endpoint, headers AS sealed, deleted_at IS NULL AS in_use FROM duehook.endpoints
         WHERE seq < :below AND headers IS NOT NULL ORDER BY seq DESC LIMIT :most"""),
    Part.SECRET: text("""/* sealed.secrets */
        SELECT s.seq, e.id AS endpoint, s.sealed,
               e.deleted_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > duehook.now()) AS in_use
          FROM duehook.secrets s JOIN duehook.endpoints e ON e.seq = s.endpoint
         WHERE s.seq < :below ORDER BY s.seq DESC LIMIT :most"""),
}
# What somebody holds is passed over: a rotation locks an endpoint's secrets in an order of its own. What has changed
# since it was read is its owner's, and newer.
_RESEAL = {
    part: text(f"""/* sealed.reseal_{part} */
        WITH mine AS MATERIALIZED (
            SELECT r.seq, n.new
              FROM duehook.{table} r
              JOIN unnest(CAST(:seqs AS bigint[]), CAST(:olds AS bytea[]), CAST(:news AS bytea[])) AS n(seq, old, new)
                ON n.seq = r.seq AND n.old = r.{column}
             WHERE r.seq = ANY (CAST(:seqs AS bigint[])) ORDER BY r.seq FOR UPDATE OF r SKIP LOCKED)
        UPDATE duehook.{table} r SET {column} = mine.new FROM mine
         WHERE r.seq = ANY (CAST(:seqs AS bigint[])) AND r.seq = mine.seq""")
    for part, table, column in ((Part.HEADERS, "endpoints", "headers"), (Part.SECRET, "secrets", "sealed"))
}


def stretch(connection: Connection, part: Part, *, below: int, most: int) -> list[Sealed]:
    """The newest `most` sealed values below a key, those of deleted endpoints and ended secrets too."""
    found = connection.execute(_STRETCH[part], {"below": below, "most": most})
    return [Sealed(row.seq, row.endpoint, bytes(row.sealed), row.in_use) for row in found]


def reseal(connection: Connection, part: Part, read: Sequence[Sealed], anew: Mapping[int, bytes]) -> int:
    """Put the values `anew` where what was `read` still stands and nobody holds it; returns how many.

    A repeat finds others there, and changes nothing.
    """
    changed = [each for each in read if each.seq in anew]
    parameters = {
        "seqs": [each.seq for each in changed],
        "olds": [each.sealed for each in changed],
        "news": [anew[each.seq] for each in changed],
    }
    return connection.execute(_RESEAL[part], parameters).rowcount
