"""How many claims in a row may end without a record before a delivery is suspected, and before it is poison.

A process that dies abandons everything it had claimed, so most of what is suspected is innocent.
"""

from typing import Final

SUSPECTED_AFTER: Final = 2  # from then on only a child process sends it, so that nothing else dies of it
POISON_AFTER: Final = 5  # by then it has had three children of its own
