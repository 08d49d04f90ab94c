"""Lists: `limit`, an opaque cursor, and pages that never outgrow memory."""

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import Response

from app.api.answers import Json, answer
from app.api.problems import Flaw, ProblemError, invalid
from app.ledger.listings import NEWEST, Page

DEFAULT_LIMIT, MOST = 50, 500
PAGE_BYTES = 16 * 1024 * 1024
AT_ONCE = 16  # rows that are loaded together: each may carry data of a megabyte
_CURSOR = re.compile(r"([a-z-]+)((?:\.[0-9]{1,19}){1,2})")
_NUMBER = re.compile(r"[0-9]{1,100}")
Row = TypeVar("Row")


def _digits(value: Any) -> int:
    if not _NUMBER.fullmatch(str(value)):
        raise ValueError("a number is written in digits alone")
    return int(value)


class Listing(BaseModel, extra="forbid"):
    """The query parameters of every list; any other is refused, or a filter with a slip would show everything."""

    limit: Annotated[int, BeforeValidator(_digits)] = Field(
        DEFAULT_LIMIT, ge=1, le=MOST, description="How many rows at most."
    )
    cursor: str | None = Field(None, max_length=100, description="`next_cursor` of the page before, of the same list.")
    tenant: str | None = Field(None, description="With a key of all tenants: whose things.")


Plain = Annotated[Listing, Query()]


def cursor(of: str, *place: int) -> str:
    """An opaque mark of a place in the list named `of`."""
    text = of + "".join(f".{number}" for number in place)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place(of: str, listing: Listing, parts: int = 1) -> tuple[int, ...] | None:
    """Where the list named `of` goes on, as so many numbers; None at its beginning. Another's cursor is a problem."""
    if listing.cursor is None:
        return None
    match = _CURSOR.fullmatch(_decoded(listing.cursor))
    numbers = tuple(int(number) for number in match[2].split(".")[1:]) if match else ()
    if match is None or match[1] != of or len(numbers) != parts or max(numbers) > NEWEST:
        raise _bad_cursor()
    return numbers


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode("ascii")
    except ValueError:  # of base64 and of ASCII
        raise _bad_cursor() from None


def _bad_cursor() -> ProblemError:
    return invalid(Flaw("/cursor", "the cursor is not one that this list has given out"))


def answer_page(
    of: str, page: Page, load: Callable[[Sequence[int]], dict[int, Row]], show: Callable[[Row], Json]
) -> Response:
    """A page of rows, loaded a few at a time and cut when it has `PAGE_BYTES`; the next one goes on from there.

    Rows that were deleted since their keys were read are left out.
    """
    shown: list[Json] = []
    size, below = 0, page.below
    for some in _chunks(page.keys):
        rows = load(some)
        texts = [show(rows[key]) for key in some if key in rows]
        shown += texts
        size += sum(map(len, texts))
        if size >= PAGE_BYTES and some[-1] != page.keys[-1]:
            below = some[-1]
            break
    return answer({"data": shown, "next_cursor": None if below is None else cursor(of, below)})


def _chunks(keys: Sequence[int]) -> Iterable[Sequence[int]]:
    return (keys[at : at + AT_ONCE] for at in range(0, len(keys), AT_ONCE))
