"""Invariant 10: no tenant, endpoint, size or speed of receiver delays another much, and no delivery an expiry."""

from tests.mutants.mutant import Edit, Mutant, sql

DELIVERIES = "app/ledger/deliveries.py"
CLAIMS = "tests/integration/test_claims.py::"
RACES = "tests/races/test_five_races.py::"
TAKES = "tests/integration/test_taking.py::"
PARKS = "tests/integration/test_parking.py::"
DISPATCH = "tests/integration/test_dispatch.py::"
PRODUCERS = "tests/integration/test_producer_role.py::"


def _mutant(
    name: str, guard: str, edit: Edit | tuple[Edit, ...], change: str, *tests: str, covers: tuple[str, ...] = ()
) -> Mutant:
    return Mutant(name, 10, guard, edit if isinstance(edit, tuple) else (edit,), change, tests, covers)


ISOLATION = (
    _mutant(
        "expiries-behind-deliveries",
        "Expiries have a lane of their own.",
        Edit("app/domain/wakeups.py", "    Kind.RESERVATION: Lane.EXPIRY,", "    Kind.RESERVATION: Lane.DELIVERY,"),
        "reservations go into the lane of deliveries",
        "tests/integration/test_relay.py::test_a_full_lane_takes_nothing_and_the_other_goes_on",
    ),
    _mutant(
        "jobs-behind-deliveries",
        "Long work has a lane of its own.",
        Edit("app/domain/wakeups.py", "    Kind.JOB: Lane.UPKEEP,", "    Kind.JOB: Lane.DELIVERY,"),
        "jobs go into the lane of deliveries",
        "tests/integration/test_relay.py::test_jobs_and_deliveries_wait_in_lanes_of_their_own",
    ),
    _mutant(
        "expiry-waits-for-a-transaction",
        "Somebody's open transaction delays its own reservation alone.",
        Edit(
            "app/ledger/reservations.py",
            "AND status = 'held' ORDER BY seq FOR UPDATE SKIP LOCKED)",
            "AND status = 'held' ORDER BY seq FOR UPDATE)",
        ),
        "SKIP LOCKED is gone",
        f"{RACES}test_an_expiry_that_comes_while_a_confirm_is_open_leaves_it_alone",
        f"{PRODUCERS}test_a_producers_open_confirm_blocks_its_own_row_only",
    ),
    _mutant(
        "claim-waits-for-a-transaction",
        "A claim passes over what somebody holds.",
        Edit(
            DELIVERIES,
            "         ORDER BY d.id FOR UPDATE OF d SKIP LOCKED),\n    judged",
            "         ORDER BY d.id FOR UPDATE OF d),\n    judged",
        ),
        "SKIP LOCKED is gone",
        f"{RACES}test_two_claims_of_one_delivery_give_it_to_one",
    ),
    _mutant(
        "record-waits-for-a-transaction",
        "A delivery that somebody holds keeps no other outcome waiting.",
        Edit(
            DELIVERIES,
            "ORDER BY d.id FOR UPDATE OF d SKIP LOCKED),\n    judged AS MATERIALIZED",
            "ORDER BY d.id FOR UPDATE OF d),\n    judged AS MATERIALIZED",
        ),
        "SKIP LOCKED is gone",
        f"{CLAIMS}test_outcomes_wait_for_nobody_s_lock_on_one_of_them",
    ),
    _mutant(
        "renewal-waits-for-a-transaction",
        "A renewal passes over what somebody holds.",
        Edit(
            DELIVERIES,
            "ORDER BY d.id FOR UPDATE OF d SKIP LOCKED)\n    UPDATE duehook.deliveries SET lease_until",
            "ORDER BY d.id FOR UPDATE OF d)\n    UPDATE duehook.deliveries SET lease_until",
        ),
        "SKIP LOCKED is gone",
        f"{CLAIMS}test_a_renewal_passes_over_what_somebody_holds_and_finds_it_free_later",
    ),
    _mutant(
        "pace-waits-for-a-transaction",
        "Who holds a pace delays that endpoint alone.",
        Edit("app/ledger/paces.py", "ORDER BY endpoint FOR UPDATE SKIP LOCKED", "ORDER BY endpoint FOR UPDATE"),
        "SKIP LOCKED is gone",
        f"{PARKS}test_who_holds_a_pace_delays_that_endpoint_alone",
    ),
    _mutant(
        "take-waits-for-a-transaction",
        "A relay passes over rows that somebody holds.",
        Edit(
            "app/ledger/outbox.py",
            "ORDER BY look_at LIMIT k.most FOR UPDATE SKIP LOCKED) o)",
            "ORDER BY look_at LIMIT k.most FOR UPDATE) o)",
        ),
        "SKIP LOCKED is gone",
        "tests/integration/test_outbox.py::test_a_take_passes_over_what_somebody_holds",
    ),
    _mutant(
        "one-row-fails-the-set",
        "A set never fails for one row: it is halved until that one is alone.",
        Edit(
            "app/core/sets.py",
            "    middle = len(ids) // 2\n    first, second",
            "        raise\n    middle = len(ids) // 2\n    first, second",
        ),
        "the error is raised",
        "tests/integration/test_sets.py::test_a_row_that_the_database_refuses_is_answered_alone",
    ),
    _mutant(
        "one-outcome-fails-the-flush",
        "One outcome that the database refuses never loses the others.",
        Edit(
            "app/core/deliveries.py",
            "    middle = len(endings) // 2\n",
            "        raise\n    middle = len(endings) // 2\n",
        ),
        "the error is raised",
        f"{CLAIMS}test_one_ending_that_the_database_refuses_never_loses_the_others",
    ),
    _mutant(
        "words-fail-the-flush",
        "What a receiver says is kept whatever bytes it is made of.",
        Edit(
            "app/ledger/deliveries.py",
            '    return words and words.replace("\\0", "\\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()',
            "    return words",
        ),
        "NULs and half surrogates go into the statement",
        f"{CLAIMS}test_what_a_receiver_says_is_kept_whatever_bytes_it_is_made_of",
    ),
    _mutant(
        "no-room-of-its-own",
        "An endpoint has at most its own room of a claim.",
        Edit(DELIVERIES, "WHEN place > free OR row_number() OVER (", "WHEN row_number() OVER ("),
        "the room of an endpoint is not looked at",
        f"{CLAIMS}test_room_is_given_by_endpoint_and_over_all_to_the_longest_due",
        f"{CLAIMS}test_an_endpoint_s_own_limit_holds_from_the_first_claim",
    ),
    _mutant(
        "limit-of-each-claimer",
        "A limit of what is in flight holds over the whole fleet.",
        Edit(
            "app/ledger/paces.py",
            "WHERE e.max_in_flight IS NOT NULL AND s.endpoint = p.endpoint AND {_LIVE}) AS in_flight",
            "WHERE false AND s.endpoint = p.endpoint AND {_LIVE}) AS in_flight",
        ),
        "what others have in flight is not counted",
        f"{PARKS}test_a_limit_of_what_is_in_flight_holds_over_every_claimer",
    ),
    _mutant(
        "pace-not-asked",
        "An endpoint that has a pace to keep is claimed by its slots alone.",
        Edit(DELIVERIES, "                         WHEN place > allowed THEN 'paced'\n", ""),
        "the pace is not looked at",
        f"{PARKS}test_an_endpoint_with_a_rate_is_claimed_by_its_slots_alone",
    ),
    _mutant(
        "hanging-receiver-waits-in-line",
        "What waits for a receiver that hangs is parked behind one row.",
        Edit("app/core/dispatch.py", "        self._parking.add(rest)\n        return Looked", "        return Looked"),
        "nothing is parked",
        f"{DISPATCH}test_what_waits_for_a_receiver_that_hangs_is_parked_behind_one_row",
    ),
    _mutant(
        "first-come-first-served",
        "A backlog of one tenant leaves another its share.",
        Edit(
            "app/core/taking.py",
            "        crowded = [kind for kind in rooms if self._crowds[kind].waiting]",
            "        crowded: list[Kind] = []",
        ),
        "everything is taken in the order of looks",
        f"{TAKES}test_a_backlog_of_one_tenant_leaves_another_its_share",
    ),
    _mutant(
        "tenants-by-their-endpoints",
        "Room is shared over tenants before it is shared over their endpoints.",
        Edit(
            "app/domain/fairness.py",
            "        end += most / len(endpoints) / endpoints[tenant]",
            "        end += most / len(crowds)",
        ),
        "every endpoint gets the same",
        "tests/unit/test_fairness.py::test_tenants_get_alike_and_each_one_s_endpoints_too",
    ),
    _mutant(
        "backlog-before-what-is-fresh",
        "Half of each share is for what fell due just now.",
        Edit("app/ledger/outbox.py", "ORDER BY look_at LIMIT (g.share + 1) / 2)", "ORDER BY look_at LIMIT 0)"),
        "the fresh half is empty",
        f"{TAKES}test_half_of_a_share_is_for_what_fell_due_just_now",
    ),
    _mutant(
        "endless-answer",
        "A response is read up to a bound, in raw bytes; what is beyond it is cut off first, so both go.",
        (
            Edit("app/sending/response.py", "        if self._received > RESPONSE_LIMIT:", "        if False:"),
            Edit("app/sending/response.py", "self._parser.feed_data(data[:room])", "self._parser.feed_data(data)"),
        ),
        "the bytes of a response are not counted",
        "tests/hostile/test_transport.py::test_a_hostile_receiver_costs_its_deadline_and_nobody_else_anything"
        "[asyncio-a head of 100 KB at once]",
    ),
    _mutant(
        "dripping-body",
        "A dripping body holds its slot for a bounded time.",
        Edit(
            "app/sending/connection.py",
            "            self._wake_at(min(self._wake_by, self._loop.time() + BODY_SECONDS))\n",
            "",
        ),
        "a body may take the whole deadline",
        "tests/hostile/test_transport.py::test_a_dripping_body_holds_its_slot_for_a_bounded_time",
    ),
    _mutant(
        "event-without-bound",
        "The data of an event are bounded.",
        sql(
            "0001/50_events.sql",
            "ELSIF NEW.origin = 'producer' AND octet_length(NEW.data::text) > service.max_event_bytes THEN",
            "ELSIF false THEN",
        ),
        "the size is not looked at",
        "tests/integration/test_event_guards.py::test_data_that_is_too_big_in_bytes_is_refused_to_producers",
    ),
    _mutant(
        "every-tenant-s-rows",
        "A producer sees and changes the rows of its own tenants only.",
        sql(
            "0001/60_access.sql",
            "CREATE POLICY granted ON duehook.events TO duehook_producer\n    USING (tenant = ANY"
            " (ARRAY(SELECT tenant FROM duehook.own_tenants)));",
            "CREATE POLICY granted ON duehook.events TO duehook_producer\n    USING (true);",
        ),
        "USING (true)",
        f"{PRODUCERS}test_a_producer_sees_and_changes_the_rows_of_its_tenants_only",
        f"{PRODUCERS}test_a_producer_writes_for_no_other_tenant_and_learns_nothing_from_trying",
    ),
    _mutant(
        "borrowed-rights",
        "Nobody hangs our triggers on a table of his own.",
        sql("0001/60_access.sql", "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA duehook FROM PUBLIC;"),
        "everybody may execute them",
        f"{PRODUCERS}test_a_producer_can_not_borrow_the_owners_rights_by_hanging_our_triggers_on_its_own_table",
    ),
    _mutant(
        "retry-of-another-s",
        "Nobody retries another tenant's delivery.",
        Edit(
            "app/ledger/by_hand.py",
            "         WHERE d.id = ANY (CAST(:ids AS bigint[])) AND d.tenant = :tenant\n         ORDER BY"
            " d.id FOR UPDATE OF d)",
            "         WHERE d.id = ANY (CAST(:ids AS bigint[])) AND :tenant <> ''\n         ORDER BY d.id"
            " FOR UPDATE OF d)",
        ),
        "the tenant is no longer compared",
        f"{CLAIMS}test_nobody_retries_or_cancels_the_delivery_of_another_tenant",
    ),
    _mutant(
        "cancel-of-another-s",
        "Nobody cancels another tenant's delivery.",
        Edit(
            "app/ledger/by_hand.py",
            "         WHERE id = ANY (CAST(:ids AS bigint[])) AND tenant = :tenant ORDER BY id FOR UPDATE)",
            "         WHERE id = ANY (CAST(:ids AS bigint[])) AND :tenant <> '' ORDER BY id FOR UPDATE)",
        ),
        "the tenant is no longer compared",
        f"{CLAIMS}test_nobody_retries_or_cancels_the_delivery_of_another_tenant",
    ),
)
