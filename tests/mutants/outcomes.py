"""Invariant 9: an ambiguous end is `unknown`, neither delivered nor failed, and goes again as the same event."""

from tests.mutants.mutant import Edit, Mutant

OUTCOMES = "app/domain/outcomes.py"
CONNECTION = "app/sending/connection.py"
TRANSPORT = "app/sending/transport.py"
UNIT = "tests/unit/test_outcomes.py::"
KEPT = "tests/hostile/test_keepalive.py::"
STATUS = f"{UNIT}test_the_status_of_a_final_head_decides"
WITHOUT_HEAD = f"{UNIT}test_without_a_head_it_counts_what_the_receiver_can_have"


def _mutant(name: str, guard: str, edit: Edit, change: str, *tests: str) -> Mutant:
    return Mutant(name, 9, guard, (edit,), change, tests)


AMBIGUOUS = (
    _mutant(
        "unknown-is-failed",
        "No complete head after request bytes went out is not a failure.",
        Edit(
            OUTCOMES,
            "        case Unknown():\n            return Outcome.UNKNOWN",
            "        case Unknown():\n            return Outcome.FAILED",
        ),
        "UNKNOWN → FAILED",
        WITHOUT_HEAD,
    ),
    _mutant(
        "unknown-is-delivered",
        "It is no delivery either.",
        Edit(
            OUTCOMES,
            "        case Unknown():\n            return Outcome.UNKNOWN",
            "        case Unknown():\n            return Outcome.DELIVERED",
        ),
        "UNKNOWN → DELIVERED",
        WITHOUT_HEAD,
    ),
    _mutant(
        "unreached-is-unknown",
        "What can't have the request is told from what may have it.",
        Edit(OUTCOMES, "            return Outcome.UNREACHED", "            return Outcome.UNKNOWN"),
        "UNREACHED → UNKNOWN",
        WITHOUT_HEAD,
    ),
    _mutant(
        "101-is-failed",
        "A 101 is no final answer.",
        Edit(
            OUTCOMES,
            "            return Outcome.UNKNOWN\n        case 2:",
            "            return Outcome.FAILED\n        case 2:",
        ),
        "1xx → FAILED",
        STATUS,
    ),
    _mutant(
        "body-decides",
        "The head of a complete response decides; what its body does afterwards changes nothing.",
        Edit(
            CONNECTION,
            "        if reader.status is None:\n            self._waiter.set_result(Unknown",
            "        if reader.status is None or trouble:\n            self._waiter.set_result(Unknown",
        ),
        "trouble in the body makes it unknown",
        "tests/integration/test_outcomes.py::test_what_a_body_does_after_a_readable_head_changes_nothing",
    ),
    _mutant(
        "sent-again-in-one-attempt",
        "Once bytes are out a request is not sent again within its attempt.",
        Edit(
            TRANSPORT,
            "            if result is not None:\n                return result",
            "            if result is not None and not (reused and isinstance(result, Unknown)):\n         "
            "       return result",
        ),
        "an unknown end on a kept connection is tried anew",
        f"{KEPT}test_a_kept_connection_that_closes_after_the_request_is_unknown_and_not_sent_twice",
    ),
    _mutant(
        "dead-connection-is-unknown",
        "A kept connection found closed before a byte was written is replaced within the attempt.",
        Edit(
            CONNECTION,
            "            not self._transport.is_closing() and self._loop.time() < self._usable_until and"
            " not self._readable.poll(0)",
            "            not self._transport.is_closing() and self._loop.time() < self._usable_until",
        ),
        "the kernel is not asked",
        f"{KEPT}test_a_receiver_that_closes_at_any_moment_costs_no_attempt_and_doubles_none",
        f"{KEPT}test_what_happens_on_an_idle_connection_is_not_the_next_answer",
    ),
    _mutant(
        "first-write-failed-is-unknown",
        "A first write that the kernel refuses has sent nothing.",
        Edit(
            CONNECTION,
            "        if self._transport.is_closing():  # the first `send` of this request failed: the"
            " kernel took nothing\n            return False\n",
            "",
        ),
        "the failed write goes unnoticed",
        f"{KEPT}test_a_reset_that_the_first_write_meets_costs_nothing",
    ),
    _mutant(
        "stray-bytes-answer",
        "Bytes that nobody asked for are never the next answer.",
        Edit(
            CONNECTION,
            "            self.abort()  # bytes that nobody asked for must never be read as the next"
            " answer\n            return\n",
            "            self._reader.feed(data)\n            return\n",
        ),
        "the connection is kept and they are read",
        f"{KEPT}test_what_happens_on_an_idle_connection_is_not_the_next_answer",
    ),
    _mutant(
        "no-deadline",
        "One deadline is round all of it: what has not answered by then is unknown.",
        Edit(CONNECTION, "        self._wake_at(deadline)\n", "        self._wake_at(deadline + 15)\n"),
        "the deadline comes 15 s late",
        "tests/hostile/test_httpx.py::test_what_the_receiver_may_have_is_a_read_error_at_the_deadline",
    ),
    _mutant(
        "late-and-sent-all-the-same",
        "After the deadline nothing is sent.",
        Edit(TRANSPORT, "        while now() < deadline:", "        while True:"),
        "the deadline is not looked at before the send",
        f"{KEPT}test_a_deadline_that_has_passed_sends_nothing_and_keeps_the_connection",
    ),
    _mutant(
        "unknown-is-short-lived",
        "An unknown end has the full schedule.",
        Edit(
            OUTCOMES,
            "    return SHORT if outcome in _SHORT_LIVED else FULL",
            "    return SHORT if outcome in (*_SHORT_LIVED, Outcome.UNKNOWN) else FULL",
        ),
        "unknown gets the short schedule",
        f"{UNIT}test_trouble_that_passes_gets_the_full_schedule",
    ),
    _mutant(
        "abandoned-has-a-verdict",
        "An abandoned claim repeats its step and has no verdict.",
        Edit(
            OUTCOMES,
            '            raise ValueError("an abandoned claim repeats its step; it has no verdict")',
            "            return None",
        ),
        "it is scheduled as a failure is",
        f"{UNIT}test_an_abandoned_claim_has_no_verdict",
    ),
)
