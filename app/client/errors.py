"""What can go wrong, as one tree of exceptions; the words of each are one sentence for people."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flaw:
    """Where a request is wrong (a JSON pointer into the body, or `/` and the query parameter) and why."""

    pointer: str
    detail: str


class DuehookError(Exception):
    """Everything that this client raises for what the service or the network does.

    `idempotency_key` is what the POST carried, if it was one: the same call with it has no second effect within a day.
    `may_have_happened`: one of its tries may have had its effect, whatever the last one was answered.
    """

    idempotency_key: str | None = None
    may_have_happened: bool = False


class RefusedError(DuehookError):
    """The service said no, in an RFC 9457 problem: `status`, its `type` and `title`.

    `errors` name the members that are wrong, where the service did.
    """

    def __init__(
        self,
        detail: str,
        status: int,
        type: str = "about:blank",
        title: str = "",
        errors: Sequence[Flaw] = (),
    ) -> None:
        super().__init__(detail)
        self.detail, self.status, self.type, self.title = detail, status, type, title
        self.errors = tuple(errors)


class InvalidError(RefusedError):
    """Some of the request is not right (422, or 400 and 415 for a body that is not JSON)."""


class UnauthorizedError(RefusedError):
    """The key is unknown or revoked (401)."""


class ForbiddenError(RefusedError):
    """The key is valid, but not for this (403)."""


class NotFoundError(RefusedError):
    """There is nothing of that name, or it is another tenant's (404)."""


class ConflictError(RefusedError):
    """The request is right, but the state of things says no (409): a late confirm, say."""


class TooLargeError(RefusedError):
    """The body, or the data in it, is larger than it may be (413)."""


class TooManyError(RefusedError):
    """A limit of the tenant is reached (429), and was after every retry; `retry_after` seconds say for how long."""

    retry_after: float | None = None


class BrokenError(RefusedError):
    """The service has a fault (500), which it has logged."""


class UnavailableError(DuehookError):
    """After the last try there was no answer that counts, and nothing has happened.

    `retry_after` is in seconds, where the service told so.
    """

    retry_after: float | None = None


class UnknownOutcomeError(UnavailableError):
    """The same, but it may have happened. A timeout is no failure: ask what is, or repeat the call.

    Repeat a POST with this error's `idempotency_key`, so that it has no second effect.
    """


class UnexpectedAnswerError(DuehookError):
    """What answered with `status` does not speak as duehook does: a proxy's page, say, or `api_url` is wrong."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class NotEndedError(DuehookError, TimeoutError):
    """The job that was waited for had not ended in time; it goes on by itself."""


BY_TYPE: dict[str, type[RefusedError]] = {
    "/problems/not-json": InvalidError,
    "/problems/no-key": UnauthorizedError,
    "/problems/wrong-scope": ForbiddenError,
    "/problems/not-found": NotFoundError,
    "/problems/conflict": ConflictError,
    "/problems/too-large": TooLargeError,
    "/problems/not-declared": InvalidError,
    "/problems/invalid": InvalidError,
    "/problems/too-many": TooManyError,
    "/problems/broken": BrokenError,
}
# For types that a later version of the service may have.
BY_STATUS: dict[int, type[RefusedError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
    415: InvalidError,
    422: InvalidError,
    429: TooManyError,
    500: BrokenError,
}
