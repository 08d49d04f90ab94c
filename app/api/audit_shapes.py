"""How the audit log is asked for and answered."""

from typing import Any

from pydantic import BaseModel, Field

from app.api.answers import Json, write
from app.api.fields import Name, NextCursor, Time, example
from app.api.paging import Listing
from app.domain.auditing import Action
from app.ledger.audit import Entry

ENTRY = {
    "id": "aud_19f3c2a9b4d00a31",
    "at": "2030-01-31T12:00:00.000000Z",
    "actor": "key_19f3c2a9b4d00a30",
    "action": "endpoint.changed",
    "subject": "end_19f3c2a9b4d00a2f",
    "details": {"members": ["rate_per_second"]},
}


class Filter(Listing):
    """What of the audit log."""

    action: Action | None = Field(None, description="Only this.")
    subject: Name | None = Field(None, description="Only about the thing of this id.")


class EntryView(BaseModel):
    """One change, by whom."""

    model_config = example(**ENTRY)

    id: str = Field(description="aud_ and digits.")
    at: Time = Field(description="When it was done.")
    actor: str = Field(description="The id of an API key; or `cli:` and who ran the command.")
    action: str = Field(description="`thing.done`; a newer version may know more of them.")
    subject: str | None = Field(description="The id of the thing; the name, where it is a tenant.")
    details: dict[str, Any] = Field(description="Ids, counts and names of members; never a value of one.")


class Entries(BaseModel):
    """A page of the audit log, newest first."""

    model_config = example(data=[ENTRY], next_cursor=None)

    data: list[EntryView] = Field(description="The entries of this page.")
    next_cursor: NextCursor


def show(entry: Entry) -> Json:
    """The text of an entry."""
    members = {name: getattr(entry, name) for name in EntryView.model_fields}
    return Json(write(members))
