"""Invariants 6, 7, 8: acknowledged when durable, no network call in a transaction, and Redis holds no truth."""

from tests.mutants.mutant import Edit, Mutant

OUTBOX = "app/ledger/outbox.py"
RELAY = "outbox_relay/relay.py"
WIRE = "outbox_relay/wire.py"
LOOKS = "tests/integration/test_outbox.py::"
TAKES = "tests/integration/test_taking.py::"
DISPATCH = "tests/integration/test_dispatch.py::"
HELD = "tests/integration/test_presence.py::"

DURABLE = (
    Mutant(
        name="acknowledged-on-arrival",
        invariant=6,
        guard="A message is acknowledged after its ids were acted on.",
        edits=(Edit("app/broker.py", '"task_acks_late": True,', '"task_acks_late": False,'),),
        change="task_acks_late off",
        tests=(
            "tests/faults/test_worker_lifecycle.py::test_a_message_is_acknowledged_only_after_its_ids_were_acted_on",
        ),
    ),
    Mutant(
        name="poison-acknowledged-first",
        invariant=6,
        guard="What no worker can act on is recorded before it is acknowledged.",
        edits=(
            Edit(
                "workers/consumer.py",
                "        self._keeper.keep(poison, lambda: self.call_soon(message.ack_log_error, log,"
                " self.connection_errors))",
                "        message.ack_log_error(log, self.connection_errors)\n        self._keeper.keep(poison,"
                " lambda: None)",
            ),
        ),
        change="ack, then record",
        tests=("tests/faults/test_poison_messages.py::test_a_database_that_is_away_costs_no_poison_and_no_spinning",),
    ),
    Mutant(
        name="outcome-given-up",
        invariant=6,
        guard="An outcome is recorded until the database has taken it.",
        edits=(
            Edit(
                "app/core/dispatch.py",
                "                time.sleep(pause)\n                pause = min(pause * 2, TROUBLE[1])\n",
                "                return []\n",
            ),
        ),
        change="the first error is the last try",
        tests=(
            f"{DISPATCH}test_outcomes_that_waited_for_the_database_are_recorded_before_anything_is_renewed_or_claimed",
        ),
    ),
    Mutant(
        name="outcomes-wait-behind-claims",
        invariant=6,
        guard="While outcomes wait for the database nothing is claimed here.",
        edits=(Edit("app/core/dispatch.py", "                self._caught_up.clear()\n", ""),),
        change="nobody is told that outcomes wait",
        tests=(
            f"{DISPATCH}test_outcomes_that_waited_for_the_database_are_recorded_before_anything_is_renewed_or_claimed",
        ),
    ),
    Mutant(
        name="published-and-forgotten",
        invariant=6,
        guard="A published row comes up again at the end of its publish lease.",
        edits=(
            Edit(
                OUTBOX,
                "SET look_at = greatest(due_at, duehook.now()) + least(:lease * (2 ^ least(publications, 20)),"
                " :longest),",
                "SET look_at = greatest(timestamptz 'infinity', duehook.now() + least(:lease, :longest)),",
            ),
        ),
        change="look_at = infinity",
        tests=(f"{LOOKS}test_a_published_row_comes_up_at_the_end_of_a_publish_lease_that_doubles",),
    ),
    Mutant(
        name="taken-for-ever",
        invariant=6,
        guard="What a relay has taken and not published comes up again in two seconds.",
        edits=(
            Edit(
                OUTBOX,
                "(taken IS NOT NULL AND taken_until > (SELECT duehook.now())\n                AND taken_until <=",
                "(taken IS NOT NULL\n                AND taken_until <=",
            ),
        ),
        change="a take has no end",
        tests=(f"{LOOKS}test_what_is_taken_comes_up_again_in_two_seconds_if_its_relay_dies",),
    ),
    Mutant(
        name="moved-before-published",
        invariant=6,
        guard="A row is moved only after its wake-up was published.",
        edits=(
            Edit(
                RELAY,
                "            self._wire.publish(messages)\n",
                "            self._taking.move(batch)\n            self._wire.publish(messages)\n",
            ),
        ),
        change="move, then publish",
        tests=(
            "tests/integration/test_relay.py::test_what_could_not_be_published_comes_up_again_when_the_take_lapses",
        ),
    ),
    Mutant(
        name="held-ids-dropped",
        invariant=6,
        guard="Ids that are due while the database is away are held until it is back.",
        edits=(Edit("workers/host.py", "        self._look_again(kind, ids[:room])\n", ""),),
        change="they wait for their publish lease",
        tests=(f"{HELD}test_what_is_due_while_the_database_is_away_waits_for_it_up_to_a_bound",),
    ),
)

APART = (
    Mutant(
        name="published-in-a-transaction",
        invariant=7,
        guard="Nothing is published inside a transaction.",
        edits=(
            Edit(
                RELAY,
                "            self._wire.publish(messages)\n",
                "            with self._engine.begin() as connection:\n"
                "                connection.exec_driver_sql('SELECT 1')\n"
                "                self._wire.publish(messages)\n",
            ),
        ),
        change="a transaction round the publication",
        tests=("tests/integration/test_relay.py::test_the_broker_is_asked_and_told_while_no_transaction_is_open",),
    ),
    Mutant(
        name="looked-in-a-transaction",
        invariant=7,
        guard="The broker is not asked inside a transaction either.",
        edits=(
            Edit(
                RELAY,
                "        seen = self._wire.look()\n",
                "        with self._engine.begin() as connection:\n"
                "            connection.exec_driver_sql('SELECT 1')\n"
                "            seen = self._wire.look()\n",
            ),
        ),
        change="a transaction round the look",
        tests=("tests/integration/test_relay.py::test_the_broker_is_asked_and_told_while_no_transaction_is_open",),
    ),
    Mutant(
        name="sent-in-a-transaction",
        invariant=7,
        guard="Nothing is sent inside a transaction.",
        edits=(
            Edit(
                "app/core/dispatch.py",
                "        self._engine.start(prepared.sends)\n",
                "        with self._database.begin() as connection:\n"
                "            connection.exec_driver_sql('SELECT 1')\n"
                "            self._engine.start(prepared.sends)\n"
                "            self.settle()\n",
            ),
        ),
        change="a transaction round the send",
        tests=(f"{DISPATCH}test_no_transaction_is_open_while_a_receiver_takes_its_time",),
    ),
)

NO_TRUTH = (
    Mutant(
        name="emptied-unseen",
        invariant=8,
        guard="A broker that was emptied or restarted is noticed by its epoch.",
        edits=(Edit(RELAY, "        if seen.epoch not in (None, self._epoch):", "        if False:"),),
        change="the epoch is not looked at",
        tests=(
            "tests/integration/test_relay.py::test_what_an_emptied_broker_has_lost_is_published_again_by_the_next_look",
        ),
    ),
    Mutant(
        name="emptied-and-nothing-done",
        invariant=8,
        guard="Another epoch ends the publish leases at once.",
        edits=(Edit(RELAY, "            lost = self._taking.look_at_published()\n", "            lost = 0\n"),),
        change="the rows keep their publish leases",
        tests=(
            "tests/integration/test_relay.py::test_what_an_emptied_broker_has_lost_is_published_again_by_the_next_look",
        ),
    ),
    Mutant(
        name="restart-unseen",
        invariant=8,
        guard="The run of the broker is part of its epoch: a restart may have lost what came last.",
        edits=(
            Edit(
                WIRE, 'f"{self._run} {mark or self._mark(self._client)!r}"', 'f"{mark or self._mark(self._client)!r}"'
            ),
        ),
        change="the mark alone is the epoch",
        tests=(
            "tests/integration/test_relay.py::test_a_restart_of_the_broker_is_noticed_though_its_mark_is_there_still",
        ),
    ),
    Mutant(
        name="epoch-not-remembered",
        invariant=8,
        guard="The epoch is kept in the ledger: a relay that starts anew repeats nothing.",
        edits=(
            Edit(
                RELAY,
                "        if ours or in_transaction(self._engine, service.broker_epoch) != epoch:",
                "        if True:",
            ),
        ),
        change="every relay begins a life of the broker",
        tests=("tests/integration/test_relay.py::test_another_relay_on_the_same_broker_publishes_nothing_again",),
    ),
    Mutant(
        name="unmoved-left-to-others",
        invariant=8,
        guard="What a relay has not moved yet when the broker was emptied is published again by itself.",
        edits=(Edit(RELAY, "        ours = bool(self._published)", "        ours = False"),),
        change="whoever saw it first has done it all",
        tests=(
            "tests/integration/test_relay.py::test_what_a_relay_has_not_moved_when_the_broker_is_emptied_is_published"
            "_again_though_another_saw_it_first",
        ),
    ),
    Mutant(
        name="unpublished-hurried",
        invariant=8,
        guard="The end of the broker moves what was published and nothing else.",
        edits=(
            Edit(
                OUTBOX,
                "AND publications > 0 AND look_at > (SELECT duehook.now())",
                "AND look_at > (SELECT duehook.now())",
            ),
        ),
        change="publications are not looked at",
        tests=(f"{TAKES}test_a_row_that_is_not_published_keeps_its_look_when_the_broker_ends",),
    ),
    Mutant(
        name="moved-without-take-token",
        invariant=8,
        guard="A row is moved only while the take's token stands: what changed meanwhile keeps its look.",
        edits=(
            Edit(
                OUTBOX,
                "AND taken = :token ORDER BY ref FOR UPDATE SKIP LOCKED)",
                "ORDER BY ref FOR UPDATE SKIP LOCKED)",
            ),
        ),
        change="the token is no longer compared",
        tests=(f"{LOOKS}test_a_row_that_changed_since_it_was_taken_is_not_moved",),
    ),
    Mutant(
        name="publish-lease-does-not-double",
        invariant=8,
        guard="The publish lease doubles, so that a backlog is not amplified.",
        edits=(
            Edit(
                OUTBOX,
                "least(:lease * (2 ^ least(publications, 20)), :longest)",
                "least(:lease * (2 ^ least(publications, 0)), :longest)",
            ),
        ),
        change="2^publications → 1",
        tests=(f"{LOOKS}test_a_published_row_comes_up_at_the_end_of_a_publish_lease_that_doubles",),
    ),
    Mutant(
        name="look-set-later",
        invariant=8,
        guard="A worker sets a look only ever sooner.",
        edits=(Edit(OUTBOX, "SET look_at = least(look_at, greatest(", "SET look_at = greatest(look_at, greatest("),),
        change="least → greatest",
        tests=(f"{LOOKS}test_a_look_is_only_ever_set_sooner",),
    ),
    Mutant(
        name="two-relays-one-row",
        invariant=8,
        guard="What one relay has taken another does not take.",
        edits=(Edit(OUTBOX, '_FREE = f"""{LIVE_TAKE} IS NOT TRUE\n', '_FREE = f"""({LIVE_TAKE} OR true)\n'),),
        change="a live take stops nobody",
        tests=(
            f"{LOOKS}test_two_relays_take_different_rows",
            f"{LOOKS}test_what_is_taken_comes_up_again_in_two_seconds_if_its_relay_dies",
        ),
    ),
    Mutant(
        name="backlog-into-the-broker",
        invariant=8,
        guard="A backlog waits in PostgreSQL: a full lane takes nothing.",
        edits=(Edit(RELAY, "(MOST_IDS * max(0, messages - waiting) for", "(MOST_IDS * messages for"),),
        change="what waits in the lane is not counted",
        tests=("tests/integration/test_relay.py::test_a_full_lane_takes_nothing_and_the_other_goes_on",),
    ),
)
WAKEUPS = (*DURABLE, *APART, *NO_TRUTH)
