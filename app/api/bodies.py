"""Bodies as models: strict outside `data`, and every byte of `data` as it was sent."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from app.api import problems
from app.api.answers import Json
from app.api.problems import Flaw, ProblemError, invalid, sentence
from app.domain.json_text import JsonTextError, Members, NotJsonError, pointer, read_batch, read_object

DATA = frozenset({"data"})
MOST_FLAWS = 20  # that one answer names


class Body(BaseModel):
    """What a request's body may hold: nothing is converted, unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


Asked = TypeVar("Asked", bound=Body)


@dataclass(frozen=True, slots=True)
class Sent(Generic[Asked]):
    """A body as it was understood, and its members as they were read; `data` is its text."""

    asked: Asked
    members: Mapping[str, object] = field(repr=False)

    @property
    def data(self) -> str | None:
        """The text of `data`; None when it was left out."""
        text = self.members.get("data")
        return text if isinstance(text, str) else None

    @property
    def canonical(self) -> str:
        """Tells a repeat from another request: the members in one order, `data` by the hash of its bytes."""
        known = dict(self.members)
        if self.data is not None:
            known["data"] = sha256(self.data.encode()).hexdigest()
        return json.dumps(known, sort_keys=True, separators=(",", ":"))


Judge = Callable[[Members], list[Flaw]]  # of what the members mean, given those whose shape is right


def _nothing_wrong(_: Members) -> list[Flaw]:
    return []


def parse(model: type[Asked], body: bytes, *, most_data: int = 0, judge: Judge = _nothing_wrong) -> Sent[Asked]:
    """One object as `model`; raises the problem of everything that is wrong with its shape and for `judge`."""
    try:
        members = read_object(body, _verbatim(model))
    except JsonTextError as error:
        raise _problem(error, body) from None
    return _all_or_nothing([_sent(model, members, "", most_data, judge)])[0]


def parse_one_or_many(model: type[Asked], body: bytes, *, most: int, most_data: int) -> Sent[Asked] | list[Sent[Asked]]:
    """One object, or a list of 1 to `most`; raises the problem of what is wrong with any of them."""
    try:
        read = read_batch(body, _verbatim(model), most=most)
    except JsonTextError as error:
        raise _problem(error, body) from None
    if not isinstance(read, list):
        return _all_or_nothing([_sent(model, read, "", most_data)])[0]
    if not read:
        raise invalid(Flaw("", f"a list has 1 to {most} elements"))
    return _all_or_nothing([_sent(model, each, pointer(at), most_data) for at, each in enumerate(read)])


def _verbatim(model: type[Body]) -> frozenset[str]:
    return DATA & model.model_fields.keys()


def _problem(error: JsonTextError, body: bytes) -> ProblemError:
    """Whoever reads strictly stops at the first flaw: whether all of the body is JSON is still to be seen."""
    if not isinstance(error, NotJsonError):
        try:
            read_object(b'{"data":%b}' % body, DATA)
        except NotJsonError:
            return ProblemError(problems.NOT_JSON, "the body is not JSON")
        except JsonTextError:
            pass  # too deep, which is a flaw as well
        return invalid(Flaw(error.pointer, error.detail))
    return ProblemError(problems.NOT_JSON, str(error))


def _sent(
    model: type[Asked], members: Members, at: str, most_data: int, judge: Judge = _nothing_wrong
) -> Sent[Asked] | list[Flaw]:
    data = members.get("data")
    if isinstance(data, str) and "data" in model.model_fields:
        if len(data) > most_data or len(data.encode()) > most_data:
            raise ProblemError(problems.TOO_LARGE, f"{at}/data has more than {most_data} bytes")
        members = {**members, "data": Json(data)}
    try:
        asked = model.model_validate(members)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)
        shapes = [Flaw(at + pointer(*each["loc"]), sentence(dict(each))) for each in wrong]
        misshapen = {part for each in wrong for part in each["loc"][:1]}
        return shapes + judge({name: value for name, value in members.items() if name not in misshapen})
    return judge(members) or Sent(asked, members)


def _all_or_nothing(read: list[Sent[Asked] | list[Flaw]]) -> list[Sent[Asked]]:
    flaws = [flaw for each in read if isinstance(each, list) for flaw in each]
    if flaws:
        raise invalid(*flaws[:MOST_FLAWS])
    return [each for each in read if isinstance(each, Sent)]
