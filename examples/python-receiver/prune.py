"""Deletes old receipts; run it daily.

What comes again after that is applied again: a delivery gives up after DUEHOOK_MAX_AGE_SECONDS (5 days), but redrives and
replays may be later.
"""

from datetime import timedelta

from app.receiver import prune
from database import engine

KEPT = timedelta(days=30)

with engine.connect() as connection:
    print(f"{prune(connection, KEPT)} receipts deleted")
