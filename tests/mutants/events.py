"""Invariant 2: an event's id, key, type and exact bytes are immutable, and its key is unique per tenant and origin."""

from tests.mutants.mutant import Edit, Mutant, sql

BEGINS = "0001/50_events.sql"
ERASED = "0006/20_erased_events.sql"
GUARDS = "tests/integration/test_event_guards.py::"
ERASURES = "tests/integration/test_erasures.py::"
UNTOUCHED = f"{GUARDS}test_no_column_of_an_event_can_be_rewritten"
SEEN = ("seq", "tenant", "origin", "type", "key", "head", "request", "only_to", "not_to", "due_at", "created_at")


def _unwatched(*columns: str) -> tuple[Edit, ...]:
    """The trigger `immutable` without these columns."""

    def compared(row: str, names: tuple[str, ...]) -> str:
        *most, last = [f"{row}.{name}" for name in names]
        return f"({', '.join(most)},\n         {last})"

    left = tuple(name for name in SEEN if name not in columns)
    return tuple(sql(ERASED, compared(row, SEEN), compared(row, left)) for row in ("NEW", "OLD"))


def _rewritten(column: str, *columns: str, behind: str = "") -> Mutant:
    return Mutant(
        name=f"rewritten-{column}",
        invariant=2,
        guard=f"The {column} of an event never changes{behind}.",
        edits=_unwatched(column, *columns),
        change=f"{' and '.join((column, *columns))} no longer compared",
        tests=(UNTOUCHED,),
        covers=("event_refused",),
    )


EVENTS = (
    _rewritten("seq", "head", behind="; the head holds the id and stands behind it"),
    _rewritten("type", "head", behind="; the head holds it and stands behind it"),
    _rewritten("key", "head", behind="; the head holds it and stands behind it"),
    _rewritten("tenant"),
    _rewritten("origin"),
    _rewritten("due_at"),
    _rewritten("created_at"),
    Mutant(
        name="rewritten-data",
        invariant=2,
        guard="The bytes of an event never change.",
        edits=(
            sql(
                ERASED,
                "(NEW.data::text, NEW.erased_at, NEW.digest) IS DISTINCT FROM (OLD.data::text, OLD.erased_at,"
                " OLD.digest)",
                "(NEW.erased_at, NEW.digest) IS DISTINCT FROM (OLD.erased_at, OLD.digest)",
            ),
        ),
        change="data is no longer compared",
        tests=(UNTOUCHED,),
    ),
    Mutant(
        name="same-value-other-bytes",
        invariant=2,
        guard="It is the exact bytes that are immutable, and not the value they spell.",
        edits=(
            sql(
                ERASED,
                "(NEW.data::text, NEW.erased_at, NEW.digest) IS DISTINCT FROM (OLD.data::text, OLD.erased_at,"
                " OLD.digest)",
                "(NEW.data::jsonb, NEW.erased_at, NEW.digest) IS DISTINCT FROM (OLD.data::jsonb, OLD.erased_at,"
                " OLD.digest)",
            ),
        ),
        change="data is compared as jsonb",
        tests=(f"{GUARDS}test_spelling_the_same_value_otherwise_is_a_rewrite",),
    ),
    Mutant(
        name="bytes-from-a-value",
        invariant=2,
        guard="Receivers get the stored bytes, on every attempt the same.",
        edits=(
            Edit(
                "app/ledger/events.py", "head || data::text || '}' AS body", "head || data::jsonb::text || '}' AS body"
            ),
        ),
        change="the body is written anew from jsonb",
        tests=(
            "tests/integration/test_dispatch.py::test_a_receiver_gets_the_very_bytes_of_the_event_on_every_attempt",
        ),
    ),
    Mutant(
        name="erased-by-anybody",
        invariant=2,
        guard="The one way out of the bytes is duehook.erase_event.",
        edits=(sql(ERASED, "current_setting('duehook.erasing', true) = 'on' AND NEW.erased_at", "NEW.erased_at"),),
        change="the guard no longer asks who erases",
        tests=(f"{ERASURES}test_the_guard_lets_out_only_what_is_erased_and_never_back",),
    ),
    Mutant(
        name="erased-without-its-digest",
        invariant=2,
        guard="What is erased leaves the digest of exactly those bytes.",
        edits=(
            sql(ERASED, " AND NEW.digest = duehook.event_digest(OLD.head, OLD.data)) IS NOT TRUE", ") IS NOT TRUE"),
        ),
        change="the digest is no longer compared",
        tests=(f"{ERASURES}test_the_guard_lets_out_only_what_is_erased_and_never_back",),
    ),
    Mutant(
        name="begins-erased",
        invariant=2,
        guard="An event begins with its bytes.",
        edits=(
            sql(
                ERASED,
                "WHEN (NEW.erased_at IS NOT NULL OR NEW.digest IS NOT NULL OR NEW.data IS NULL)",
                "WHEN (false)",
            ),
        ),
        change="the trigger begins_whole never fires",
        tests=(f"{ERASURES}test_the_guard_lets_out_only_what_is_erased_and_never_back",),
        covers=("event_begins_erased",),
    ),
    Mutant(
        name="re-opened-without-bytes",
        invariant=2,
        guard="Nothing of an erased event is opened again; the statement of a retry stands before it.",
        edits=(
            sql(
                ERASED,
                "IF EXISTS (SELECT FROM duehook.events WHERE seq = NEW.event AND erased_at IS NOT NULL) THEN",
                "IF false THEN",
            ),
        ),
        change="the trigger erased lets everything pass",
        tests=(f"{ERASURES}test_the_database_itself_opens_nothing_of_it_again",),
        covers=("delivery_erased",),
    ),
    Mutant(
        name="fanned-out-twice",
        invariant=2,
        guard="fanned_out_at changes once.",
        edits=(
            sql(
                ERASED,
                "        OR OLD.fanned_out_at IS NOT NULL AND NEW.fanned_out_at IS DISTINCT FROM OLD.fanned_out_at\n",
            ),
        ),
        change="the condition is gone",
        tests=(f"{GUARDS}test_an_event_is_fanned_out_once_and_cancelled_once",),
    ),
    Mutant(
        name="cancelled-twice",
        invariant=2,
        guard="cancelled_at changes once.",
        edits=(
            sql(
                ERASED,
                "        OR OLD.cancelled_at IS NOT NULL AND NEW.cancelled_at IS DISTINCT FROM OLD.cancelled_at\n",
            ),
        ),
        change="the condition is gone",
        tests=(f"{GUARDS}test_an_event_is_fanned_out_once_and_cancelled_once",),
    ),
    Mutant(
        name="fan-out-of-the-cancelled",
        invariant=2,
        guard="A cancelled event is never fanned out.",
        edits=(
            sql(
                ERASED,
                "        OR NEW.cancelled_at IS NOT NULL AND OLD.fanned_out_at IS NULL AND NEW.fanned_out_at IS"
                " NOT NULL\n",
            ),
        ),
        change="the condition is gone",
        tests=(f"{GUARDS}test_a_cancelled_event_never_fans_out",),
    ),
    Mutant(
        name="fan-out-believed",
        invariant=2,
        guard="What a new row says of its own fan-out and cancel is not believed.",
        edits=(sql(BEGINS, "    NEW.cancelled_at := NULL;\n"),),
        change="cancelled_at is taken as it comes",
        tests=(f"{GUARDS}test_what_a_row_says_of_its_own_fan_out_is_not_believed",),
        covers=("event_before_insert",),
    ),
    Mutant(
        name="key-twice",
        invariant=2,
        guard="A business key is unique per tenant and origin.",
        edits=(sql(BEGINS, "CREATE UNIQUE INDEX events_key", "CREATE INDEX events_key"),),
        change="UNIQUE INDEX → INDEX",
        tests=(
            f"{GUARDS}test_a_second_insert_of_a_key_waits_for_the_first_and_decides_by_its_end",
            f"{GUARDS}test_a_key_stands_once_per_tenant_and_a_repeat_makes_nothing",
        ),
        covers=("events_key",),
    ),
    Mutant(
        name="one-key-space",
        invariant=2,
        guard="The service's keys are a space apart, so that no producer can block an expiry.",
        edits=(
            sql(BEGINS, "duehook.events (tenant, origin, key) WHERE", "duehook.events (tenant, key) WHERE"),
            sql("0007/10_accept.sql", "ON CONFLICT (tenant, origin, key)", "ON CONFLICT (tenant, key)"),
        ),
        change="(tenant, origin, key) → (tenant, key)",
        tests=(f"{GUARDS}test_a_producers_row_with_the_key_of_a_coming_transition_blocks_nothing",),
    ),
    Mutant(
        name="producer-speaks-for-the-service",
        invariant=2,
        guard="A producer's row can't have one of the service's types.",
        edits=(sql(BEGINS, "ELSIF NEW.origin = 'producer' AND NEW.type ~", "ELSIF false AND NEW.type ~"),),
        change="the branch that raises DH005 is never taken",
        tests=(f"{GUARDS}test_a_producer_can_not_speak_for_the_service",),
    ),
    Mutant(
        name="any-origin",
        invariant=2,
        guard="An event is a producer's or the service's.",
        edits=(sql(BEGINS, "CHECK (origin IN ('producer', 'service'))", "CHECK (true)"),),
        change="CHECK (true)",
        tests=(f"{GUARDS}test_a_producer_can_not_speak_for_the_service",),
        covers=("events_origin_check",),
    ),
    Mutant(
        name="producer-chooses-the-origin",
        invariant=2,
        guard="The role of producers may not say that a row is the service's.",
        edits=(
            sql(
                "0001/60_access.sql",
                "GRANT INSERT (tenant, type, key, data, due_at) ON duehook.events",
                "GRANT INSERT (tenant, origin, type, key, data, due_at) ON duehook.events",
            ),
        ),
        change="origin is granted",
        tests=("tests/integration/test_producer_role.py::test_the_privileges_of_the_role_are_exactly_these",),
    ),
    Mutant(
        name="deleted-under-its-deliveries",
        invariant=2,
        guard="An event goes only after its last delivery has ended.",
        edits=(
            sql(
                BEGINS,
                "IF EXISTS (SELECT FROM duehook.deliveries WHERE event = OLD.seq AND status IN",
                "IF EXISTS (SELECT FROM duehook.deliveries WHERE false AND status IN",
            ),
        ),
        change="the trigger before_delete lets everything pass",
        tests=(f"{GUARDS}test_an_event_goes_only_after_its_last_delivery_has_ended",),
        covers=("event_before_delete",),
    ),
    Mutant(
        name="identity-of-the-delivery",
        invariant=2,
        guard="webhook-id is the event's id, whoever gets it and however often.",
        edits=(
            Edit("app/core/requests.py", '("webhook-id", event_id),', '("webhook-id", f"{event_id}{claim.attempt}"),'),
        ),
        change="the attempt goes into webhook-id",
        tests=("tests/integration/test_outcomes.py::test_an_unknown_end_keeps_its_identity",),
    ),
    Mutant(
        name="fan-out-to-the-deleted",
        invariant=2,
        guard="A fan-out goes to the endpoints of its moment, not to deleted ones.",
        edits=(
            sql(
                "0001/30_endpoints.sql",
                "IF TG_OP <> 'DELETE' AND NEW.deleted_at IS NULL THEN",
                "IF TG_OP <> 'DELETE' THEN",
            ),
        ),
        change="a deleted endpoint keeps its subscriptions",
        tests=(f"{GUARDS}test_disabled_endpoints_get_their_events_and_deleted_ones_do_not",),
        covers=("endpoint_subscribes",),
    ),
    Mutant(
        name="no-fan-out",
        invariant=2,
        guard="An event that waited is fanned out in the statement that says so, to all who want it.",
        edits=(sql(BEGINS, "(TG_OP = 'INSERT' OR n.seq = ANY (waited))", "TG_OP = 'INSERT'"),),
        change="the update makes no deliveries",
        tests=(f"{GUARDS}test_a_waiting_event_goes_to_the_endpoints_of_the_moment_it_is_fanned_out",),
        covers=("event_fan_out",),
    ),
)
