"""Invariant 1: a reservation moves once, by the database's clock after the row lock, together with its event."""

from tests.mutants.mutant import Edit, Mutant, sql

TRIGGERS = "0001/20_reservations.sql"
LEDGER = "app/ledger/reservations.py"
GUARDS = "tests/integration/test_reservation_guards.py::"
PAIRS = f"{GUARDS}test_each_pair_of_states_moves_stays_or_is_refused_as_the_database_clock_says"
RACES = "tests/races/test_five_races.py::"
CONFIRM = "ELSIF NEW.status = 'confirmed' AND OLD.status = 'held' AND at >= OLD.expires_at THEN"

RESERVATIONS = (
    Mutant(
        name="late-confirm",
        invariant=1,
        guard="A reservation is confirmed only while now < expires_at.",
        edits=(sql(TRIGGERS, CONFIRM, "ELSIF false THEN"),),
        change="the branch that raises DH002 is never taken",
        tests=(PAIRS,),
        covers=("reservation_before_update",),
    ),
    Mutant(
        name="confirm-at-the-moment",
        invariant=1,
        guard="At expires_at itself it is too late to confirm.",
        edits=(sql(TRIGGERS, CONFIRM, CONFIRM.replace(">=", ">")),),
        change="at >= expires_at → at >",
        tests=(PAIRS,),
    ),
    Mutant(
        name="confirm-judged-before-the-lock",
        invariant=1,
        guard="The clock is read after the row lock, not by a WHERE that is checked again only if the row changed.",
        edits=(
            sql(TRIGGERS, CONFIRM, "ELSIF false THEN"),
            Edit(
                LEDGER,
                "SET status = :status WHERE tenant = :tenant AND id = :id RETURNING",
                "SET status = :status WHERE tenant = :tenant AND id = :id AND (CAST(:status AS text) <> 'confirmed'"
                " OR expires_at > (SELECT duehook.now())) RETURNING",
            ),
        ),
        change="the time moves from the trigger into the statement's WHERE",
        tests=(f"{RACES}test_a_confirm_queued_behind_a_rollback_past_its_time_loses_and_expires_it",),
    ),
    Mutant(
        name="early-expiry",
        invariant=1,
        guard="A reservation expires only when now >= expires_at.",
        edits=(sql(TRIGGERS, "AND OLD.status = 'held' AND at < OLD.expires_at THEN", "AND false THEN"),),
        change="the branch that passes over early rows is never taken",
        tests=(PAIRS, f"{GUARDS}test_early_rows_of_an_expiring_batch_are_passed_over_untouched"),
    ),
    Mutant(
        name="expiry-at-the-moment",
        invariant=1,
        guard="At expires_at itself it does expire.",
        edits=(sql(TRIGGERS, "AND at < OLD.expires_at THEN", "AND at <= OLD.expires_at THEN"),),
        change="at < expires_at → at <=",
        tests=(PAIRS,),
    ),
    Mutant(
        name="any-transition",
        invariant=1,
        guard="held → confirmed | released | expired, confirmed → released, nothing else, nothing twice.",
        edits=(sql(TRIGGERS, "ELSIF NOT (OLD.status = 'held' AND", "ELSIF false AND NOT (OLD.status = 'held' AND"),),
        change="the branch that raises DH001 is never taken",
        tests=(PAIRS,),
    ),
    Mutant(
        name="confirmed-expires",
        invariant=1,
        guard="A confirmed reservation is released and never expires.",
        edits=(
            sql(
                TRIGGERS,
                "OR OLD.status = 'confirmed' AND NEW.status = 'released') THEN",
                "OR OLD.status = 'confirmed') THEN",
            ),
        ),
        change="from confirmed anything is legal",
        tests=(PAIRS,),
    ),
    Mutant(
        name="any-state",
        invariant=1,
        guard="There are four states; the CHECK stands behind the transitions of the trigger, so both go.",
        edits=(
            sql(TRIGGERS, "CHECK (status IN ('held', 'confirmed', 'released', 'expired'))", "CHECK (true)"),
            sql(TRIGGERS, "ELSIF NOT (OLD.status = 'held' AND", "ELSIF false AND NOT (OLD.status = 'held' AND"),
            sql(TRIGGERS, "ELSIF NEW.status <> 'held' OR NEW.version <> 1 THEN", "ELSIF false THEN"),
        ),
        change="CHECK (true), and no transition is illegal",
        tests=(f"{GUARDS}test_a_state_that_does_not_exist_is_refused",),
        covers=("reservations_status_check",),
    ),
    Mutant(
        name="begins-anywhere",
        invariant=1,
        guard="A reservation begins as held, version 1.",
        edits=(sql(TRIGGERS, "ELSIF NEW.status <> 'held' OR NEW.version <> 1 THEN", "ELSIF false THEN"),),
        change="the branch that raises DH001 on insert is never taken",
        tests=(f"{GUARDS}test_a_value_outside_the_contract_is_refused",),
        covers=("reservation_before_insert",),
    ),
    Mutant(
        name="repeat-is-refused",
        invariant=1,
        guard="Already done is an ordinary result.",
        edits=(sql(TRIGGERS, "ELSIF NEW.status = OLD.status THEN", "ELSIF false THEN"),),
        change="the branch that leaves the row as it is is never taken",
        tests=(f"{GUARDS}test_a_repeated_confirm_counts_its_row_and_makes_no_event",),
    ),
    Mutant(
        name="repeat-is-a-transition",
        invariant=1,
        guard="A repeat makes no new version.",
        edits=(sql(TRIGGERS, "RETURN OLD; -- already so", "NULL; -- already so"),),
        change="a repeat goes on to the new version",
        tests=(f"{GUARDS}test_a_repeated_confirm_counts_its_row_and_makes_no_event",),
    ),
    Mutant(
        name="repeat-tells-again",
        invariant=1,
        guard="A repeat makes no event; that the trigger leaves the row as it is stands behind it, so both go.",
        edits=(
            sql(TRIGGERS, "RETURN OLD; -- already so", "NULL; -- already so"),
            sql(TRIGGERS, "     WHERE n.status <> o.status\n", ""),
        ),
        change="a repeat is a version and an event",
        tests=(f"{GUARDS}test_a_repeated_confirm_counts_its_row_and_makes_no_event",),
    ),
    Mutant(
        name="transition-without-event",
        invariant=1,
        guard="Transition and event commit together.",
        edits=(sql(TRIGGERS, "     WHERE n.status <> o.status\n", "     WHERE false\n"),),
        change="the trigger inserts no event",
        tests=(f"{GUARDS}test_a_transition_tells_its_subscribers_the_reservation_as_it_is_now",),
        covers=("reservation_after_update",),
    ),
    Mutant(
        name="time-moves",
        invariant=1,
        guard="expires_at never changes, and neither does anything else but the status.",
        edits=(
            sql(TRIGGERS, "NEW.resource, NEW.expires_at, NEW.exclusive", "NEW.resource, NEW.exclusive"),
            sql(TRIGGERS, "OLD.resource, OLD.expires_at, OLD.exclusive", "OLD.resource, OLD.exclusive"),
        ),
        change="expires_at is no longer compared",
        tests=(f"{GUARDS}test_nothing_but_the_status_can_be_written",),
    ),
    Mutant(
        name="two-exclusive-holders",
        invariant=1,
        guard="The database allows one held or confirmed exclusive reservation per tenant and resource.",
        edits=(sql(TRIGGERS, "CREATE UNIQUE INDEX reservations_exclusive", "CREATE INDEX reservations_exclusive"),),
        change="UNIQUE INDEX → INDEX",
        tests=(f"{GUARDS}test_of_two_concurrent_exclusive_inserts_exactly_one_wins",),
        covers=("reservations_exclusive",),
    ),
    Mutant(
        name="overdue-holder-stays",
        invariant=1,
        guard="An overdue holder is expired by the hold that follows it, whether or not a worker has come round.",
        edits=(sql(TRIGGERS, "    IF holder IS NOT NULL THEN", "    IF false THEN"),),
        change="the holder is not expired",
        tests=(f"{GUARDS}test_an_overdue_holder_is_expired_by_the_plain_insert_that_follows_it",),
        covers=("reservation_expire_holder",),
    ),
    Mutant(
        name="late-confirm-leaves-it-held",
        invariant=1,
        guard="A late confirm expires the reservation on the spot.",
        edits=(Edit("app/core/reservations.py", "if isinstance(moved, reservations.Late):", "if False:"),),
        change="no second statement after DH002",
        tests=(f"{RACES}test_a_confirm_queued_behind_a_rollback_past_its_time_loses_and_expires_it",),
    ),
    Mutant(
        name="expiry-of-what-is-not-held",
        invariant=1,
        guard="An expiry takes what is held alone; the trigger stands behind it and refuses the whole batch.",
        edits=(
            Edit(
                LEDGER, "AND status = 'held' ORDER BY seq FOR UPDATE SKIP LOCKED", "ORDER BY seq FOR UPDATE SKIP LOCKED"
            ),
        ),
        change="the batch locks every reservation it names",
        tests=(f"{RACES}test_two_expiries_of_one_reservation_expire_it_once",),
    ),
)
