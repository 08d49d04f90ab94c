"""What the ledger needs from time to time, besides the audit."""

from sqlalchemy import Connection, text

_MAKE_ATTEMPT_DAYS = text("/* upkeep.make_attempt_days */ SELECT duehook.make_attempt_days()")


def make_attempt_days(connection: Connection) -> int:
    """Make the partitions of attempts for the days ahead; returns how many were missing.

    A look at the catalogue, nothing more, when none is. 0 as well when somebody is in the way: there are days left.
    """
    made = connection.execute(_MAKE_ATTEMPT_DAYS).scalar_one()
    assert isinstance(made, int)
    return made
