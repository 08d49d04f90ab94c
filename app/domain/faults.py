"""An exception, told without its words: they may hold a payload, a secret or a URL.

PostgreSQL quotes the row that it refuses, parsers quote what they can't read, clients the URL they can't reach.
"""

import traceback
from collections.abc import Iterator

MOST_FRAMES = 12


def told(error: BaseException) -> str:
    """Its kinds, the latest first, each followed by where it came from; for logs."""
    return "\n".join(
        line for each in _chain(error) for line in (_kind(each), *(f"  {place}" for place in places(each)))
    )


def kinds(error: BaseException) -> str:
    """Its kinds alone, the latest first, e.g. `IntegrityError < CheckViolation 23514 events_key_check`."""
    return " < ".join(map(_kind, _chain(error)))


def places(error: BaseException) -> list[str]:
    """The last of the places that it came through, the innermost at the end."""
    frames = traceback.extract_tb(error.__traceback__)[-MOST_FRAMES:]
    return [f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames]


def _kind(error: BaseException) -> str:
    """With what PostgreSQL says of a refusal that is ours and not the row's: its SQLSTATE and the constraint."""
    constraint = getattr(getattr(error, "diag", None), "constraint_name", None)
    return " ".join(filter(None, (type(error).__name__, getattr(error, "sqlstate", None), constraint)))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)
