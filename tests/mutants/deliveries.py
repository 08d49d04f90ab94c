"""Invariants 3 and 5: one delivery per event and endpoint, ended by its token alone; what"
" attempt, step and round count."""

from tests.mutants.mutant import Edit, Mutant, sql

TABLE = "0001/40_deliveries.sql"
LEDGER = "app/ledger/deliveries.py"
BY_HAND = "app/ledger/by_hand.py"
GUARDS = "tests/integration/test_delivery_guards.py::"
STEPS = f"{GUARDS}test_each_step_between_states_is_taken_or_refused_by_the_rules"
CLAIMS = "tests/integration/test_claims.py::"
RACES = "tests/races/test_five_races.py::"
SUSPICION = "tests/integration/test_suspicion.py::"
STANDS = f"{GUARDS}test_a_state_stands_with_what_belongs_to_it_and_nothing_else"
FORGED = f"{RACES}test_a_record_with_a_made_up_token_changes_nothing"


def _check(name: str, constraint: str, guard: str, old: str, *, of: str = STANDS) -> Mutant:
    return Mutant(
        name=name,
        invariant=3,
        guard=guard,
        edits=(sql(TABLE, old, "CHECK (true)"),),
        change="CHECK (true)",
        tests=(of,),
        covers=(constraint,),
    )


ENDINGS = (
    Mutant(
        name="two-deliveries",
        invariant=3,
        guard="One delivery per event and endpoint.",
        edits=(sql(TABLE, "    UNIQUE (event, endpoint),\n"),),
        change="the UNIQUE is gone",
        tests=(f"{GUARDS}test_an_event_has_one_delivery_per_endpoint",),
        covers=("deliveries_event_endpoint_key",),
    ),
    Mutant(
        name="record-without-token",
        invariant=3,
        guard="An outcome ends the claim of its own token alone; looked at twice in the statement, so both go.",
        edits=(
            Edit(LEDGER, "JOIN told t ON t.id = d.id AND t.token = d.token", "JOIN told t ON t.id = d.id"),
            Edit(LEDGER, "AND d.id = j.id AND d.token = j.token", "AND d.id = j.id"),
        ),
        change="the token is no longer compared",
        tests=(FORGED, f"{RACES}test_an_outcome_that_meets_the_lapsed_claim_of_another_is_refused"),
    ),
    Mutant(
        name="attempt-of-another-token",
        invariant=3,
        guard="Of several outcomes of a delivery in one statement the attempt is that of the token that ended it.",
        edits=(Edit(LEDGER, "JOIN told t ON t.id = j.id AND t.token = j.token", "JOIN told t ON t.id = j.id"),),
        change="the attempt is joined by delivery alone",
        tests=(f"{CLAIMS}test_an_older_claim_s_outcome_beside_the_newer_one_s_leaves_one_attempt",),
    ),
    Mutant(
        name="record-until-the-lease-ends",
        invariant=3,
        guard="The token alone decides: a lapsed lease that nobody re-claimed may still record.",
        edits=(
            Edit(
                LEDGER,
                "JOIN told t ON t.id = d.id AND t.token = d.token",
                "JOIN told t ON t.id = d.id AND t.token = d.token AND d.lease_until > duehook.now()",
            ),
        ),
        change="the lease must not have ended",
        tests=(f"{CLAIMS}test_a_lapsed_lease_that_nobody_re_claimed_records_its_outcome",),
    ),
    Mutant(
        name="record-twice",
        invariant=3,
        guard="The same token recorded twice is one record; looked at twice, so both go.",
        edits=(
            Edit(LEDGER, "JOIN told t ON t.id = d.id AND t.token = d.token", "JOIN told t ON t.id = d.id"),
            Edit(LEDGER, "AND d.id = j.id AND d.token = j.token", "AND d.id = j.id"),
        ),
        change="the token is no longer compared",
        tests=(f"{RACES}test_a_commit_whose_answer_is_lost_is_recorded_once",),
    ),
    Mutant(
        name="older-outcome-raises",
        invariant=3,
        guard="Zero rows changed means that somebody newer owns it: told by its absence, never raised.",
        edits=(
            Edit(
                LEDGER,
                "        states |= dict.fromkeys(connection.execute(_STILL, parameters).scalars(),"
                " DeliveryStatus.LEASED)",
                "        raise LookupError(missing)",
            ),
        ),
        change="a token that ends nothing raises",
        tests=(FORGED,),
    ),
    Mutant(
        name="superseded-comes-again",
        invariant=3,
        guard="Only a claim that is ours still, and locked, is recorded again.",
        edits=(
            Edit(
                LEDGER,
                "CAST(:tokens AS uuid[])) AS t(id, token) ON t.id = d.id AND t.token = d.token\n     WHERE",
                "CAST(:tokens AS uuid[])) AS t(id, token) ON t.id = d.id AND d.status = 'leased'\n     WHERE",
            ),
        ),
        change="whose lease it is is no longer asked",
        tests=(FORGED,),
    ),
    Mutant(
        name="give-back-without-token",
        invariant=3,
        guard="A claim is given back by its own token; looked at twice in the statement, so both go.",
        edits=(
            Edit(LEDGER, "AND token = :token ORDER BY id FOR UPDATE)", "AND token IS NOT NULL ORDER BY id FOR UPDATE)"),
            Edit(LEDGER, "(ARRAY(SELECT id FROM mine)) AND token = :token", "(ARRAY(SELECT id FROM mine))"),
        ),
        change="the token is no longer compared",
        tests=(FORGED,),
    ),
    Mutant(
        name="renew-without-token",
        invariant=3,
        guard="A lease is renewed by its own token.",
        edits=(
            Edit(
                LEDGER,
                "            ON t.id = d.id AND t.token = d.token\n         WHERE",
                "            ON t.id = d.id AND d.token IS NOT NULL\n         WHERE",
            ),
        ),
        change="the token is no longer compared",
        tests=(f"{CLAIMS}test_a_claim_that_was_claimed_anew_is_not_renewed_and_neither_is_the_newer_one",),
    ),
    Mutant(
        name="abandon-without-token",
        invariant=3,
        guard="The death of a sender ends its own claim and no newer one.",
        edits=(
            Edit(
                "app/ledger/suspects.py",
                "WHERE id = :id AND token = :token FOR UPDATE",
                "WHERE id = :id AND token IS NOT NULL FOR UPDATE",
            ),
        ),
        change="the token is no longer compared",
        tests=(f"{SUSPICION}test_a_newer_claim_is_not_ended_for_the_death_of_an_older_one_s_sender",),
    ),
    Mutant(
        name="claim-of-a-running-lease",
        invariant=3,
        guard="While a lease runs nobody else claims.",
        edits=(Edit(LEDGER, "WHEN status = 'leased' AND lease_until > at THEN 'held'", "WHEN false THEN 'held'"),),
        change="a leased delivery is never held",
        tests=(f"{CLAIMS}test_every_id_of_a_wake_up_gets_an_answer",),
    ),
    Mutant(
        name="claim-of-the-finished",
        invariant=3,
        guard="What has ended is not claimed.",
        edits=(
            Edit(LEDGER, "WHEN status IN ('delivered', 'dead', 'cancelled') THEN 'gone'", "WHEN false THEN 'gone'"),
        ),
        change="a terminal delivery is never gone",
        tests=(f"{RACES}test_an_old_retry_after_a_recorded_success_finds_nothing",),
    ),
    Mutant(
        name="one-token-for-all",
        invariant=3,
        guard="Every claim has a token of its own.",
        edits=(Edit("app/core/deliveries.py", "            token=uuid4(),", "            token=UUID(int=1),"),),
        change="uuid4() → the same for ever",
        tests=(f"{CLAIMS}test_claims_of_one_call_share_a_token_that_no_other_call_has",),
    ),
    Mutant(
        name="re-claimed-under-the-same-token",
        invariant=3,
        guard="A claim that counts brings another token.",
        edits=(
            sql(
                TABLE,
                "NEW.attempt = OLD.attempt + 1 AND NEW.token IS DISTINCT FROM OLD.token",
                "NEW.attempt = OLD.attempt + 1",
            ),
        ),
        change="the tokens are no longer compared",
        tests=(STEPS,),
    ),
    Mutant(
        name="renewed-under-another-token",
        invariant=3,
        guard="A renewed lease keeps its token.",
        edits=(sql(TABLE, "OR NEW.attempt = OLD.attempt AND NEW.token = OLD.token)", "OR NEW.attempt = OLD.attempt)"),),
        change="the tokens are no longer compared",
        tests=(STEPS,),
    ),
    Mutant(
        name="cancel-not-heard",
        invariant=3,
        guard="What was cancelled in the air ends as delivered or as cancelled.",
        edits=(Edit(LEDGER, "                WHEN m.cancel_requested THEN 'cancelled'\n", ""),),
        change="an outcome does not look for a cancel",
        tests=(f"{CLAIMS}test_a_cancel_spares_what_is_finished_and_ends_what_is_in_the_air_with_its_outcome",),
    ),
    Mutant(
        name="another-s-delivery",
        invariant=3,
        guard="Whose delivery it is never changes.",
        edits=(
            sql(TABLE, "(NEW.id, NEW.event, NEW.endpoint, NEW.tenant, NEW.created_at)", "(NEW.id, NEW.created_at)"),
            sql(TABLE, "(OLD.id, OLD.event, OLD.endpoint, OLD.tenant, OLD.created_at)", "(OLD.id, OLD.created_at)"),
        ),
        change="event, endpoint and tenant are no longer compared",
        tests=(f"{GUARDS}test_whose_delivery_it_is_never_changes",),
        covers=("delivery_refused",),
    ),
    _check(
        "any-delivery-state",
        "deliveries_status_check",
        "A delivery has one of five states.",
        "CHECK (status IN ('scheduled', 'leased', 'delivered', 'dead', 'cancelled'))",
    ),
    _check(
        "lease-without-token",
        "deliveries_check",
        "A leased delivery, and no other, has a token, a claim and a lease.",
        "CHECK (num_nonnulls(token, claimed_at, lease_until) = CASE status WHEN 'leased' THEN 3 ELSE 0 END)",
    ),
    _check(
        "dead-without-reason",
        "deliveries_check1",
        "A dead delivery, and no other, has a reason.",
        "CHECK ((status = 'dead') = (reason IS NOT NULL))",
    ),
    _check(
        "delivered-without-time",
        "deliveries_check2",
        "A delivered one, and no other, has the time of it.",
        "CHECK ((status = 'delivered') = (delivered_at IS NOT NULL))",
    ),
    _check(
        "parked-in-the-air",
        "deliveries_check3",
        "Only what is scheduled is parked.",
        "CHECK (status = 'scheduled' OR NOT parked)",
    ),
)

COUNTS = (
    Mutant(
        name="begins-with-attempts",
        invariant=5,
        guard="A delivery begins as scheduled, attempt 0, step 0, round 1.",
        edits=(
            sql(
                TABLE,
                "WHEN (NEW.status <> 'scheduled' OR NEW.attempt <> 0 OR NEW.step <> 0 OR NEW.round <> 1)",
                "WHEN (false)",
            ),
        ),
        change="the trigger born never fires",
        tests=(f"{GUARDS}test_a_delivery_begins_scheduled_before_its_first_attempt",),
    ),
    Mutant(
        name="claim-not-counted",
        invariant=5,
        guard="attempt counts claims; the database stands behind the statement, so both go.",
        edits=(
            Edit(LEDGER, "attempt = d.attempt + CASE a.answer WHEN 'taken' THEN 1 ELSE 0 END,", "attempt = d.attempt,"),
            sql(TABLE, "OR NEW.attempt = OLD.attempt AND NEW.token = OLD.token)", "OR NEW.attempt = OLD.attempt)"),
        ),
        change="a claim leaves attempt as it is, and may",
        tests=(f"{CLAIMS}test_steps_count_outcomes_and_attempts_count_claims",),
    ),
    Mutant(
        name="attempt-jumps",
        invariant=5,
        guard="A claim counts one.",
        edits=(
            sql(TABLE, "(NEW.attempt = OLD.attempt + 1 AND NEW.token", "(NEW.attempt <> OLD.attempt AND NEW.token"),
        ),
        change="attempt + 1 → any other number",
        tests=(STEPS,),
    ),
    Mutant(
        name="attempt-reset",
        invariant=5,
        guard="attempt is never reset, not by a new round either.",
        edits=(sql(TABLE, "AND NEW.step = 0 AND NEW.attempt = OLD.attempt", "AND NEW.step = 0"),),
        change="a new round may begin with any attempt",
        tests=(STEPS,),
    ),
    Mutant(
        name="re-opened-in-the-middle",
        invariant=5,
        guard="A new round begins with step 0.",
        edits=(sql(TABLE, "AND NEW.step = 0 AND NEW.attempt = OLD.attempt", "AND NEW.attempt = OLD.attempt"),),
        change="a new round may begin with any step",
        tests=(f"{GUARDS}test_a_delivery_is_re_opened_only_with_a_schedule_that_begins_anew",),
    ),
    Mutant(
        name="re-opened-without-round",
        invariant=5,
        guard="A terminal state is left only into a new round.",
        edits=(sql(TABLE, "NEW.round = OLD.round + 1 AND NEW.step = 0", "NEW.step = 0"),),
        change="the round need not change",
        tests=(STEPS,),
    ),
    Mutant(
        name="round-changes-in-the-air",
        invariant=5,
        guard="A claim and its end stay in their round.",
        edits=(
            sql(
                TABLE,
                "WHEN OLD.status = 'leased' THEN NEW.attempt = OLD.attempt AND NEW.round = OLD.round",
                "WHEN OLD.status = 'leased' THEN NEW.attempt = OLD.attempt",
            ),
        ),
        change="the round may change with the end of a claim",
        tests=(STEPS,),
    ),
    Mutant(
        name="reason-rewritten",
        invariant=5,
        guard="A dead delivery keeps its reason.",
        edits=(sql(TABLE, "\n                 AND NEW.reason IS NOT DISTINCT FROM OLD.reason"),),
        change="the reason is no longer compared",
        tests=(f"{GUARDS}test_a_dead_delivery_keeps_its_reason",),
    ),
    Mutant(
        name="outcome-is-no-step",
        invariant=5,
        guard="step counts recorded outcomes and alone drives the schedule.",
        edits=(Edit(LEDGER, "step = least(d.step + 1, 32767), abandoned = 0,", "step = d.step, abandoned = 0,"),),
        change="an outcome leaves step as it is",
        tests=(f"{CLAIMS}test_steps_count_outcomes_and_attempts_count_claims",),
    ),
    Mutant(
        name="abandoned-is-a-step",
        invariant=5,
        guard="An abandoned claim repeats its step.",
        edits=(
            Edit(
                LEDGER,
                "               abandoned = a.abandoned,\n",
                "               abandoned = a.abandoned, step = d.step + CASE a.status WHEN 'leased' THEN 1"
                " ELSE 0 END,\n",
            ),
        ),
        change="a claim of a lapsed lease counts a step",
        tests=("tests/integration/test_outcomes.py::test_an_abandoned_claim_is_no_step",),
    ),
    Mutant(
        name="give-back-is-a-step",
        invariant=5,
        guard="A claim that was never sent is given back with the same step.",
        edits=(
            Edit(
                LEDGER,
                "           next_attempt_at = duehook.now() + :after, token = NULL,",
                "           next_attempt_at = duehook.now() + :after, step = step + 1, token = NULL,",
            ),
        ),
        change="giving back counts a step",
        tests=(f"{CLAIMS}test_what_is_given_back_keeps_its_step",),
    ),
    Mutant(
        name="abandoned-untold",
        invariant=5,
        guard="A claim that ended without a record is an attempt `abandoned`.",
        edits=(
            Edit(
                LEDGER,
                "         WHERE status = 'leased' AND answer IN ('taken',",
                "         WHERE false AND answer IN ('taken',",
            ),
        ),
        change="no attempt is written for a lapsed lease",
        tests=("tests/contract/test_deliveries.py::test_a_claim_without_a_record_is_an_abandoned_attempt",),
    ),
    Mutant(
        name="abandoned-not-counted",
        invariant=5,
        guard="Abandoned claims are counted by themselves.",
        edits=(
            Edit(
                LEDGER,
                "d.abandoned + CASE d.status WHEN 'leased' THEN 1 ELSE 0 END AS abandoned",
                "d.abandoned AS abandoned",
            ),
        ),
        change="a lapsed lease counts nothing",
        tests=(
            f"{SUSPICION}test_after_two_abandoned_claims_in_a_row_an_ordinary_worker_gets_it_no_more_and_it_l"
            f"oses_no_attempt",
        ),
    ),
    Mutant(
        name="abandoned-for-ever",
        invariant=5,
        guard="Abandoned claims are bounded: five in a row are poison.",
        edits=(Edit(LEDGER, "WHEN abandoned >= :poison THEN 'poisoned'", "WHEN false THEN 'poisoned'"),),
        change="nothing is ever poisoned",
        tests=(f"{SUSPICION}test_five_abandoned_claims_in_a_row_are_the_end_whoever_looks",),
    ),
    Mutant(
        name="suspect-among-others",
        invariant=5,
        guard="A suspect is claimed by a child's room alone.",
        edits=(Edit(LEDGER, "WHEN suspect AND :room_suspects = 0 THEN 'suspect'", "WHEN false THEN 'suspect'"),),
        change="an ordinary worker claims suspects",
        tests=(
            f"{SUSPICION}test_after_two_abandoned_claims_in_a_row_an_ordinary_worker_gets_it_no_more_and_it_l"
            f"oses_no_attempt",
        ),
    ),
    Mutant(
        name="suspected-for-ever",
        invariant=5,
        guard="One recorded outcome clears the suspicion.",
        edits=(Edit(LEDGER, "step = least(d.step + 1, 32767), abandoned = 0,", "step = least(d.step + 1, 32767),"),),
        change="an outcome leaves abandoned as it is",
        tests=(f"{SUSPICION}test_one_recorded_outcome_clears_it",),
    ),
    Mutant(
        name="death-not-counted",
        invariant=5,
        guard="The death of a child counts as an abandoned claim.",
        edits=(Edit("app/ledger/suspects.py", "abandoned = abandoned + 1, next_attempt_at", "next_attempt_at"),),
        change="ending a dead sender's claim counts nothing",
        tests=(f"{SUSPICION}test_a_claim_whose_sender_died_ends_at_once_and_counts",),
    ),
    Mutant(
        name="old-age-in-a-new-round",
        invariant=5,
        guard="A new round has its age from now.",
        edits=(
            Edit(
                BY_HAND,
                "age_from = CASE status WHEN 'scheduled' THEN age_from ELSE now.at END,",
                "age_from = age_from,",
            ),
        ),
        change="age_from stays",
        tests=(f"{CLAIMS}test_a_retry_of_what_has_ended_begins_a_round_with_its_schedule_and_age_anew",),
    ),
    Mutant(
        name="retry-begins-anew",
        invariant=5,
        guard="A retry of what waits makes it sooner and begins no round.",
        edits=(Edit(BY_HAND, "step = CASE status WHEN 'scheduled' THEN step ELSE 0 END,", "step = 0,"),),
        change="step 0 whatever the state",
        tests=(f"{CLAIMS}test_a_retry_of_what_waits_keeps_its_step_round_and_age",),
    ),
    Mutant(
        name="too-old-to-record",
        invariant=5,
        guard="A retry that would come too late is buried at once.",
        edits=(
            Edit(
                LEDGER,
                "WHEN m.status = 'scheduled' AND now.at + m.after >= m.age_from + :max_age THEN 'dead'",
                "WHEN false THEN 'dead'",
            ),
        ),
        change="a record does not look at the age",
        tests=(f"{CLAIMS}test_a_retry_beyond_the_age_limit_buries_it_now",),
    ),
    Mutant(
        name="too-old-to-claim",
        invariant=5,
        guard="A claim that meets one too old buries it.",
        edits=(Edit(LEDGER, "WHEN age_from + :max_age <= at THEN 'buried'", "WHEN false THEN 'buried'"),),
        change="a claim does not look at the age",
        tests=(f"{CLAIMS}test_a_claim_that_meets_one_too_old_buries_it",),
    ),
)
DELIVERIES = (*ENDINGS, *COUNTS)
