"""Invariant 4: every open thing has exactly one row of the outbox, and every closed thing has none."""

from tests.mutants.mutant import Edit, Mutant, sql

RESERVATIONS = "0001/20_reservations.sql"
EVENTS = "0001/50_events.sql"
DELIVERIES = "0001/40_deliveries.sql"
PARKING = "0003/20_parking.sql"
JOBS = "0004/10_jobs.sql"
JOBS_NOW = "0006/30_erased_tenants.sql"
OF_RESERVATIONS = (
    "tests/integration/test_reservation_guards.py::test_the_outbox_row_stands_while_it_is_held_and_goes_with_it"
)
OF_EVENTS = "tests/integration/test_event_guards.py::"
OF_DELIVERIES = "tests/integration/test_delivery_guards.py::"
LIFE = f"{OF_DELIVERIES}test_the_outbox_row_follows_a_delivery_through_its_life"
PARKS = "tests/integration/test_parking.py::"
OF_JOBS = "tests/integration/test_jobs.py::"
OPEN = "WHERE status IN ('scheduled', 'leased')\n            EXCEPT"
LOOK = """           CASE WHEN status = 'leased' THEN lease_until WHEN parked THEN age_from + service.max_age
                ELSE next_attempt_at - service.horizon END
"""


def _mutant(
    name: str, guard: str, edit: Edit | tuple[Edit, ...], change: str, *tests: str, covers: tuple[str, ...] = ()
) -> Mutant:
    return Mutant(name, 4, guard, edit if isinstance(edit, tuple) else (edit,), change, tests, covers)


def _undeleted(of: str, path: str, column: str, test: str) -> Mutant:
    """A table whose deleted rows leave theirs in the outbox behind."""
    return _mutant(
        f"deleted-{of}-keeps-its-row",
        f"A deleted {of} takes its row along.",
        sql(
            path,
            f"    FOR EACH STATEMENT EXECUTE FUNCTION duehook.close_deleted('{column}');",
            f"    FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION duehook.close_deleted('{column}');",
        ),
        "the trigger after_delete never fires",
        test,
        covers=("close_deleted",),
    )


OUTBOX = (
    _mutant(
        "two-rows",
        "A thing has exactly one row.",
        sql(
            "0001/10_outbox.sql", "ref          bigint      NOT NULL PRIMARY KEY,", "ref          bigint      NOT NULL,"
        ),
        "the primary key is gone",
        LIFE,
    ),
    _mutant(
        "row-of-no-kind",
        "A row is of a kind that somebody looks at.",
        sql(JOBS, "CHECK (kind IN ('reservation', 'event', 'delivery', 'endpoint', 'job'))", "CHECK (true)"),
        "CHECK (true)",
        "tests/integration/test_outbox.py::test_a_row_of_a_kind_that_nobody_looks_at_is_refused",
        covers=("outbox_kind_check",),
    ),
    # reservations
    _mutant(
        "reservation-without-row",
        "A held reservation has a row from its beginning.",
        sql(
            RESERVATIONS,
            "expires_at - horizon FROM new_rows ORDER BY seq",
            "expires_at - horizon FROM new_rows WHERE false",
        ),
        "the trigger after_insert inserts nothing",
        OF_RESERVATIONS,
        covers=("reservation_after_insert",),
    ),
    _mutant(
        "reservation-looked-at-late",
        "Its look is a horizon before it is due.",
        sql(RESERVATIONS, "expires_at - horizon FROM new_rows", "expires_at FROM new_rows"),
        "look_at without the horizon",
        OF_RESERVATIONS,
    ),
    _mutant(
        "closed-reservation-keeps-its-row",
        "A reservation that is no longer held has none.",
        sql(
            RESERVATIONS,
            "    DELETE FROM duehook.outbox WHERE ref = ANY (ARRAY(SELECT seq FROM new_rows WHERE status <>"
            " 'held'));\n",
        ),
        "the DELETE is gone",
        OF_RESERVATIONS,
    ),
    _undeleted("reservation", RESERVATIONS, "seq", OF_RESERVATIONS),
    # events
    _mutant(
        "event-without-row",
        "An event that waits has a row from its beginning.",
        sql(
            EVENTS, "FROM new_rows WHERE fanned_out_at IS NULL ORDER BY seq;", "FROM new_rows WHERE false ORDER BY seq;"
        ),
        "the trigger after_insert inserts nothing",
        f"{OF_EVENTS}test_an_event_within_the_horizon_fans_out_at_once_and_one_beyond_it_waits",
    ),
    _mutant(
        "event-looked-at-late",
        "Its look is a horizon before it is due.",
        sql(EVENTS, "due_at - horizon\n          FROM new_rows", "due_at\n          FROM new_rows"),
        "look_at without the horizon",
        f"{OF_EVENTS}test_an_event_within_the_horizon_fans_out_at_once_and_one_beyond_it_waits",
    ),
    _mutant(
        "fanned-out-event-keeps-its-row",
        "An event that was fanned out has none.",
        sql(
            EVENTS,
            "FROM new_rows WHERE fanned_out_at IS NOT NULL OR cancelled_at IS NOT NULL",
            "FROM new_rows WHERE cancelled_at IS NOT NULL",
        ),
        "the DELETE leaves fanned-out events out",
        f"{OF_EVENTS}test_a_waiting_event_goes_to_the_endpoints_of_the_moment_it_is_fanned_out",
    ),
    _mutant(
        "cancelled-event-keeps-its-row",
        "An event that was cancelled has none.",
        sql(
            EVENTS,
            "FROM new_rows WHERE fanned_out_at IS NOT NULL OR cancelled_at IS NOT NULL",
            "FROM new_rows WHERE fanned_out_at IS NOT NULL",
        ),
        "the DELETE leaves cancelled events out",
        f"{OF_EVENTS}test_a_cancelled_event_never_fans_out",
    ),
    _undeleted("event", EVENTS, "seq", f"{OF_EVENTS}test_a_waiting_event_that_is_deleted_takes_its_outbox_row_along"),
    # deliveries
    _mutant(
        "delivery-without-row",
        "A scheduled delivery has a row from its beginning.",
        sql(
            DELIVERIES,
            "FROM new_rows WHERE status = 'scheduled' ORDER BY id;\n    RETURN NULL;",
            "FROM new_rows WHERE false;\n    RETURN NULL;",
        ),
        "the trigger after_insert inserts nothing",
        LIFE,
        covers=("delivery_after_insert",),
    ),
    _mutant(
        "delivery-looked-at-late",
        "Its look is a horizon before it is due.",
        sql(
            DELIVERIES,
            "SELECT id, 'delivery', tenant, endpoint, next_attempt_at, next_attempt_at - horizon",
            "SELECT id, 'delivery', tenant, endpoint, next_attempt_at, next_attempt_at",
        ),
        "look_at without the horizon",
        f"{OF_DELIVERIES}test_the_horizon_of_the_moment_decides_when_the_relay_looks",
        LIFE,
    ),
    _mutant(
        "claim-not-looked-at",
        "A claim moves the row to the end of its lease.",
        sql(PARKING, OPEN, "WHERE status = 'scheduled'\n            EXCEPT"),
        "leased deliveries move no row",
        LIFE,
        covers=("delivery_after_update",),
    ),
    _mutant(
        "lease-looked-at-before-its-end",
        "A leased delivery is looked at when its lease ends.",
        sql(PARKING, LOOK, LOOK.replace("WHEN status = 'leased' THEN lease_until ", "")),
        "look_at as if it were scheduled",
        LIFE,
    ),
    _mutant(
        "retry-not-looked-at",
        "A record moves the row to the next attempt.",
        sql(PARKING, OPEN, "WHERE status = 'leased'\n            EXCEPT"),
        "scheduled deliveries move no row",
        LIFE,
    ),
    _mutant(
        "retry-at-the-lease-s-end",
        "A retry that is due just when the lease would have ended is looked at all the same.",
        sql(
            PARKING,
            "EXCEPT\n            SELECT id, tenant, endpoint, status, next_attempt_at",
            "EXCEPT\n            SELECT id, tenant, endpoint, 'scheduled', coalesce(lease_until, next_attempt_at)",
        ),
        "only another time counts as a move",
        f"{OF_DELIVERIES}test_a_retry_that_is_due_just_when_the_lease_would_have_ended_is_looked_at_in_time",
        LIFE,
    ),
    _mutant(
        "taken-row-moved",
        "A row that changes is no longer the relay's that had taken it.",
        sql(PARKING, "publications = 0, taken = NULL;\n    IF EXISTS", "publications = 0;\n    IF EXISTS"),
        "the take token stays",
        "tests/integration/test_outbox.py::test_a_row_that_changed_since_it_was_taken_is_not_moved",
    ),
    _mutant(
        "published-row-keeps-its-count",
        "What changed begins its publications anew.",
        sql(PARKING, "publications = 0, taken = NULL;\n    IF EXISTS", "taken = NULL;\n    IF EXISTS"),
        "publications stay",
        LIFE,
    ),
    _mutant(
        "re-opened-without-row",
        "What is opened again has a row again.",
        sql(
            PARKING,
            OPEN,
            "WHERE status = 'leased' OR status = 'scheduled' AND NOT (round > 1 AND step = 0)\n            EXCEPT",
        ),
        "a new round moves no row",
        LIFE,
    ),
    _mutant(
        "closed-delivery-keeps-its-row",
        "A delivery that has ended has none.",
        sql(PARKING, "        DELETE FROM duehook.outbox WHERE ref = ANY (closed);\n"),
        "the DELETE is gone",
        LIFE,
    ),
    _undeleted(
        "delivery",
        DELIVERIES,
        "id",
        f"{OF_DELIVERIES}test_a_deleted_delivery_takes_its_outbox_row_and_its_dead_letter_along",
    ),
    _mutant(
        "neighbours-disturbed",
        "A change that moves nothing leaves the look as it is.",
        sql(
            PARKING,
            "            EXCEPT\n            SELECT id, tenant, endpoint, status, next_attempt_at,"
            " lease_until, parked,\n                   CASE WHEN parked THEN age_from END FROM old_rows",
            "",
        ),
        "every update sets the look",
        f"{OF_DELIVERIES}test_a_look_that_was_moved_by_hand_is_not_disturbed_by_unrelated_updates",
    ),
    # endpoints
    _mutant(
        "parked-without-endpoint-row",
        "An endpoint that has parked deliveries has a row.",
        sql(PARKING, "    IF EXISTS (SELECT FROM new_rows WHERE parked) THEN", "    IF false THEN"),
        "parking makes no row for the endpoint",
        f"{PARKS}test_parking_puts_a_delivery_to_its_age_limit_and_wakes_its_endpoint",
    ),
    _mutant(
        "parked-at-its-own-time",
        "A parked delivery waits for its endpoint: its own row is at its age limit.",
        sql(PARKING, LOOK, LOOK.replace("WHEN parked THEN age_from + service.max_age\n", "\n")),
        "look_at as if it were not parked",
        f"{PARKS}test_parking_puts_a_delivery_to_its_age_limit_and_wakes_its_endpoint",
    ),
    _mutant(
        "endpoint-row-for-ever",
        "An endpoint without parked deliveries has no row.",
        Edit(
            "app/ledger/parking.py",
            "    DELETE FROM duehook.outbox WHERE ref = ANY (CAST(:endpoints AS bigint[])) AND kind = 'endpoint'",
            "    DELETE FROM duehook.outbox WHERE ref = ANY (CAST(:endpoints AS bigint[])) AND kind = 'none'",
        ),
        "the DELETE finds nothing",
        f"{PARKS}test_what_is_parked_for_a_deleted_endpoint_is_cancelled_however_much_it_is",
        f"{PARKS}test_a_look_gives_slots_to_some_and_comes_again_while_more_are_parked",
    ),
    _mutant(
        "endpoint-row-ends-too-early",
        "The row goes only when a later statement finds nothing parked.",
        Edit(
            "app/core/pacing.py",
            "[each.endpoint for each in queues if not each.ids])",
            "[each.endpoint for each in queues])",
        ),
        "the first look deletes it",
        f"{PARKS}test_a_look_gives_slots_to_some_and_comes_again_while_more_are_parked",
    ),
    _mutant(
        "park-without-the-endpoint-s-lock",
        "Whoever parks holds the endpoint's row until he commits.",
        sql(PARKING, "ON CONFLICT (ref) DO UPDATE SET publications = o.publications;", "ON CONFLICT (ref) DO NOTHING;"),
        "DO UPDATE → DO NOTHING",
        "tests/races/test_parking.py::test_in_every_order",
    ),
    _mutant(
        "enabled-and-not-looked-at",
        "Enabling an endpoint has what is parked for it looked at.",
        Edit(
            "app/core/endpoints.py",
            "    paces.reset(connection, seq, keep_hint=keep_hint)\n    _look_now(connection, seq)\n",
            "    paces.reset(connection, seq, keep_hint=keep_hint)\n",
        ),
        "no look is set",
        f"{PARKS}test_what_is_due_for_a_disabled_endpoint_is_parked_behind_a_row_that_never_comes_up_unti"
        f"l_it_is_enabled",
    ),
    # jobs
    _mutant(
        "job-without-row",
        "An open job has a row from its beginning.",
        sql(
            JOBS_NOW,
            "        VALUES (NEW.seq, 'job', NEW.tenant, NEW.next_step_at, NEW.next_step_at)\n",
            "        SELECT NEW.seq, 'job', NEW.tenant, NEW.next_step_at, NEW.next_step_at WHERE TG_OP = 'UPDATE'\n",
        ),
        "a new job inserts nothing",
        f"{OF_JOBS}test_a_new_job_has_a_row_that_says_now",
        covers=("job_after_change",),
    ),
    _mutant(
        "job-not-moved",
        "A step moves the row to the next one.",
        sql(
            JOBS_NOW,
            "           SET due_at = excluded.due_at, look_at = excluded.look_at, publications = 0, taken = NULL;",
            "           SET publications = 0, taken = NULL;",
        ),
        "a step leaves the look as it is",
        f"{OF_JOBS}test_an_early_wakeup_leaves_the_look_at_the_next_step",
        f"{OF_JOBS}test_the_pace_is_never_above_the_rate_and_nothing_is_made_up_for",
    ),
    _mutant(
        "job-taken-and-moved",
        "A job whose step is done is no longer the relay's that had taken its row.",
        sql(
            JOBS_NOW,
            "look_at = excluded.look_at, publications = 0, taken = NULL;",
            "look_at = excluded.look_at, publications = 0;",
        ),
        "the take token stays",
        f"{OF_JOBS}test_a_relay_that_was_publishing_meanwhile_does_not_move_the_next_look",
    ),
    _mutant(
        "ended-job-keeps-its-row",
        "A job that has ended has none.",
        sql(JOBS_NOW, "        DELETE FROM duehook.outbox WHERE ref = NEW.seq;\n"),
        "the DELETE is gone",
        f"{OF_JOBS}test_a_redrive_opens_everything_once_and_tells_of_it",
    ),
    _undeleted("job", JOBS, "seq", f"{OF_JOBS}test_a_job_that_is_deleted_leaves_no_row"),
    _mutant(
        "another-job",
        "What a job is never changes.",
        sql(
            JOBS,
            "(NEW.seq, NEW.tenant, NEW.kind, NEW.parameters::text, NEW.created_at)\n            IS DISTINCT"
            " FROM (OLD.seq, OLD.tenant, OLD.kind, OLD.parameters::text, OLD.created_at)",
            "(NEW.seq, NEW.tenant) IS DISTINCT FROM (OLD.seq, OLD.tenant)",
        ),
        "kind, parameters and creation are no longer compared",
        f"{OF_JOBS}test_the_database_itself_keeps_jobs_legal",
        covers=("job_refused",),
    ),
    _mutant(
        "job-goes-back",
        "The progress of a job never goes back.",
        sql(JOBS, "        OR NEW.done < OLD.done\n"),
        "done is no longer compared",
        f"{OF_JOBS}test_the_database_itself_keeps_jobs_legal",
    ),
    _mutant(
        "ended-job-goes-on",
        "A job that has ended stays as it is.",
        sql(JOBS, "OR OLD.status IN ('completed', 'failed', 'cancelled')", "OR false"),
        "what has ended may change",
        f"{OF_JOBS}test_the_database_itself_keeps_jobs_legal",
    ),
    # the database keeps it, not the code
    _mutant(
        "producer-writes-the-outbox",
        "No producer can forget a row, or write one: the database keeps them.",
        sql(
            "0001/60_access.sql",
            "GRANT UPDATE (status) ON duehook.reservations TO duehook_producer;",
            "GRANT UPDATE (status) ON duehook.reservations TO duehook_producer;\nGRANT DELETE ON"
            " duehook.outbox TO duehook_producer;",
        ),
        "the outbox is granted to producers",
        "tests/integration/test_producer_role.py::test_the_privileges_of_the_role_are_exactly_these",
    ),
    _mutant(
        "audit-inserts-nothing",
        "Reconciliation gives an open thing without a row one.",
        Edit(
            "app/ledger/reconciliation.py",
            "FROM duehook.{things.table} t WHERE t.{things.key} = ANY (CAST(:keys AS bigint[]))\n        ON"
            " CONFLICT DO NOTHING",
            "FROM duehook.{things.table} t WHERE false AND t.{things.key} = ANY (CAST(:keys AS bigint[]))\n"
            "        ON CONFLICT DO NOTHING",
        ),
        "the repair inserts nothing",
        "tests/integration/test_reconciliation.py::test_an_open_thing_without_a_row_gets_one_that_says_when",
    ),
    _mutant(
        "audit-deletes-what-is-open",
        "It deletes the rows of nothing open, and no other.",
        Edit(
            "app/ledger/reconciliation.py",
            "     WHERE ref = ANY (CAST(:keys AS bigint[])) AND NOT ({",
            "     WHERE ref = ANY (CAST(:keys AS bigint[])) AND NOT (false AND {",
        ),
        "what it deletes is not looked at again",
        "tests/integration/test_reconciliation.py::test_a_row_that_says_something_wrong_is_written_anew",
    ),
)
