"""What schemathesis can't read off the document: texts of a format that JSON Schema does not know."""

import json
import os
from datetime import datetime
from typing import Any

import schemathesis
from hypothesis import strategies as st

IDS: dict[str, str] = json.loads(os.environ["THINGS"])  # of one thing of each kind, by the part of the path
HOSTS = st.sampled_from(["shop.example", "192.0.2.1.example", "[2606:4700::1111]", "1.1.1.1", "a.b.c.example:8443"])
PATHS = st.from_regex(r"/[a-z0-9/._~-]{0,20}(\?[a-z]=[a-z0-9]{0,5})?", fullmatch=True)
FUTURE = "2035-07-01T12:00:00.5+02:00"
TIMES = st.just(FUTURE)
NAMES = st.from_regex(r"x-[a-z0-9]{1,20}", fullmatch=True)
SECRETS = st.just("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

schemathesis.openapi.format("date-time", TIMES)
schemathesis.openapi.format("uri", st.builds("https://{}{}".format, HOSTS, PATHS))
schemathesis.openapi.format("header-name", NAMES)
schemathesis.openapi.format("signing-secret", SECRETS)


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    """Makes valid what only words can demand: an id that exists, no made-up cursor, times to come, and in order."""
    if case.meta is None or case.meta.generation.mode is not schemathesis.GenerationMode.POSITIVE:
        return
    if "id" in case.path_parameters:
        case.path_parameters["id"] = IDS[case.path.split("/")[2]]
    case.query.pop("cursor", None)
    case.headers.pop("Idempotency-Key", None)  # the same one comes with many bodies, which is refused in time
    body: Any = case.body
    if isinstance(body, dict) and body.get("expires_at"):
        body["expires_at"] = FUTURE
    for window in (body, body.get("filter") if isinstance(body, dict) else None):
        if isinstance(window, dict) and window.get("since") and window.get("until"):
            window["since"], window["until"] = sorted((window["since"], window["until"]), key=datetime.fromisoformat)
