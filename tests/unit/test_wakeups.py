"""How the relay packs what it took into messages."""

from datetime import UTC, datetime, timedelta

from app.core.taking import AHEAD
from app.domain.wakeups import Kind
from app.ledger.outbox import Taken
from outbox_relay.relay import MOST_IDS, Ahead, wakeups

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def taken(ref: int, seconds: float, kind: Kind = Kind.DELIVERY) -> Taken:
    return Taken(ref, kind, "acme", 0, NOW + timedelta(seconds=seconds), 0)


def test_what_is_due_by_now_goes_together_without_an_eta() -> None:
    (one,) = wakeups([taken(2, 0), taken(1, -3600), taken(3, -1)], NOW)
    assert (one.eta, sorted(row.ref for row in one.rows)) == (None, [1, 2, 3])


def test_what_is_due_soon_is_announced_a_second_ahead() -> None:
    (one,) = wakeups([taken(1, 8), taken(2, 8.5)], NOW)
    assert one.eta == NOW + timedelta(seconds=8) - AHEAD


def test_what_was_published_ahead_counts_until_it_is_nearly_due_whether_or_not_more_is_published() -> None:
    ahead = Ahead()
    ahead.add(list(wakeups([taken(1, 8), taken(2, 8.5), taken(3, 0)], NOW)))
    assert ahead.ids(NOW + timedelta(seconds=8) - AHEAD - timedelta(seconds=1)) == 2
    assert ahead.ids(NOW + timedelta(seconds=8) - AHEAD) == 0


def test_of_what_is_overdue_the_fresh_goes_first() -> None:
    (one,) = wakeups([taken(1, -3600), taken(2, -1), taken(3, -60)], NOW)
    assert [row.ref for row in one.rows] == [2, 1, 3]


def test_an_eta_that_has_passed_is_none() -> None:
    (one,) = wakeups([taken(1, 0.5)], NOW)
    assert one.eta is None


def test_an_event_that_waited_is_fanned_out_as_soon_as_it_is_looked_at() -> None:
    (one,) = wakeups([taken(1, 9, Kind.EVENT)], NOW)
    assert one.eta is None


def test_kinds_and_far_apart_times_travel_apart() -> None:
    messages = list(wakeups([taken(1, 2), taken(2, 5), taken(3, 2, Kind.EVENT), taken(4, 2.9)], NOW))
    assert [(each.kind, [row.ref for row in each.rows]) for each in messages] == [
        (Kind.DELIVERY, [1, 4]),
        (Kind.DELIVERY, [2]),
        (Kind.EVENT, [3]),
    ]


def test_a_message_holds_a_bounded_number_of_ids_and_none_is_lost() -> None:
    messages = list(wakeups([taken(ref, -1) for ref in range(2 * MOST_IDS + 50)], NOW))
    assert [len(each.rows) for each in messages] == [MOST_IDS, MOST_IDS, 50]
    assert {row.ref for each in messages for row in each.rows} == set(range(2 * MOST_IDS + 50))


def test_nothing_taken_is_nothing_to_say() -> None:
    assert list(wakeups([], NOW)) == []
