"""How the audit log is asked for and answered."""

from typing import Any

from pydantic import BaseModel, Field

from app.api.answers import Json, write
from app.api.fields import Time
from app.api.paging import Listing
from app.domain.auditing import Action
from app.ledger.audit import Entry


class Filter(Listing):
    """What of the audit log."""

    action: Action | None = Field(None, description="Only this.")
    subject: str | None = Field(None, max_length=100, description="Only about the thing of this id.")


class EntryView(BaseModel):
    """One change, by whom."""

    id: str
    at: Time
    actor: str = Field(description="The id of an API key; or `cli:` and who ran the command.")
    action: str = Field(description="`thing.done`; a newer version may know more of them.")
    subject: str | None = Field(description="The id of the thing; the name, where it is a tenant.")
    details: dict[str, Any] = Field(description="Ids, counts and names of members; never a value of one.")


class Entries(BaseModel):
    """A page of the audit log, newest first."""

    data: list[EntryView]
    next_cursor: str | None


def show(entry: Entry) -> Json:
    """The text of an entry."""
    members = {name: getattr(entry, name) for name in EntryView.model_fields}
    return Json(write(members))
