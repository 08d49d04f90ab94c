"""Which actions meet in which scene, and what may come of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

from sqlalchemy import text

from app.core import deliveries as core
from app.core import events, jobs, pacing, reservations
from app.core.reservations import Refused
from app.domain.states import DeliveryStatus
from app.domain.wakeups import Answer
from app.ledger.reconciliation import Walk
from app.ledger.reservations import Reservation
from tests.ledgers import ROOM, TERMS, row, rows
from tests.races import scenes
from tests.races.actions import ACTIONS, AUDITED
from tests.races.scenes import Scene
from tests.races.stage import Stage

MOST_LOOKS = 10
LEADING = 1  # of a scene it is they that the others meet in the suite; all meet in the wide run
LONG = {  # ten seconds to minutes each, hundreds to thousands of orders: in the wide run alone
    ("two deliveries for one place", ("claim", "claim")),
    ("two deliveries for one place", ("claim", "retry")),
    ("two deliveries for one place", ("claim", "hear of trouble")),
    ("an event that is to be replayed", ("do the job's step", "do the job's step")),
    ("an event that is to be erased", ("do the job's step", "do the job's step")),
    *(
        ("a dead letter that has a row", ("audit the rows", other))
        for other in ("redrive", "retry", "cancel the delivery", "cancel the event", "relay", "audit the rows")
    ),
    *(
        ("a delivery whose row says wrong", ("audit the rows", other))
        for other in ("claim", "retry", "cancel the delivery", "cancel the event", "park", "audit the rows")
    ),
}
Told = Sequence[tuple[str, Any]]  # each action with what it was told


def told_of(told: Told, *actions: str) -> list[Any]:
    return [result for action, result in told if action in actions]


def reservation_has_one_end(scene: Scene, told: Told) -> None:
    """Confirm or expire, never both; what is overdue is expired by the next who looks."""
    now = row(scene.engine, "reservations", "seq", scene.reservation)
    confirms = told_of(told, "confirm")
    expiries = [each[scene.reservation] for each in told_of(told, "expire")]
    if any(isinstance(each, Reservation) for each in confirms):
        assert now["status"] in ("confirmed", "released"), "who was told that it is confirmed has it"
    if any(isinstance(each, Refused) for each in confirms):
        assert now["status"] in ("expired", "released"), "who was refused lost to another end"
    if Answer.TAKEN in expiries:
        assert now["status"] == "expired" and expiries.count(Answer.TAKEN) == 1
    for refused in told_of(told, "release"):
        assert isinstance(refused, Reservation) == (now["status"] == "released"), "a release wins, or an expiry did"
    overdue = now["expires_at"] <= rows(scene.engine, "SELECT duehook.now()")[0]
    if now["status"] == "held" and overdue:
        looked = reservations.expire(scene.engine, [scene.reservation]).answers
        assert looked == {scene.reservation: Answer.TAKEN}, "nothing is left that holds it"


def claim_has_one_end(scene: Scene, told: Told) -> None:
    """Of all that may end the claim that the scene begins with one does at most, and the attempt has one row."""
    (delivery,) = scene.deliveries
    recorded = [
        each[delivery]
        for each in told_of(told, "record success", "record failure", "record death")
        if each.get(delivery, DeliveryStatus.LEASED) is not DeliveryStatus.LEASED
    ]
    returned = [each for each in told_of(told, "give back") if each]
    abandoned = [each for each in told_of(told, "abandon") if each]
    assert len(recorded) + len(returned) + len(abandoned) <= 1, "one token, one end"
    first = rows(
        scene.engine,
        "SELECT outcome FROM duehook.attempts WHERE delivery = :id AND number = :number",
        id=delivery,
        number=scene.claims[0].attempt,
    )
    now = row(scene.engine, "deliveries", "id", delivery)
    if recorded:
        assert first and first[0] != "abandoned", "the re-claimed refuses the older outcome"
    elif abandoned:
        assert first == ["abandoned"]
    elif not returned:
        over = now["token"] != scene.claims[0].token
        assert first == (["abandoned"] if over else []), "who takes it over leaves a row of what he found"
    delivery_has_one_owner(scene, told)


def delivery_has_one_owner(scene: Scene, told: Told) -> None:
    """No two are told that they may send it, and what can still be sent is looked at when it is due."""
    owners = [each for answers in told_of(told, "claim") for each, answer in answers.items() if answer is Answer.TAKEN]
    assert len(owners) == len(set(owners)), "one owner at a time"
    wakes_up(scene)


_UNTOUCHED = """
    SELECT o.kind, o.ref FROM duehook.outbox o
     WHERE o.kind IN ('endpoint', 'delivery') AND o.look_at <= duehook.now() + interval '2 minutes'
       AND NOT EXISTS (SELECT FROM duehook.deliveries d WHERE d.id = o.ref AND d.status = 'leased')"""
_LEFT = """
    SELECT id FROM duehook.deliveries d
     WHERE status = 'scheduled' AND NOT EXISTS (
        SELECT FROM duehook.endpoints e WHERE e.seq = d.endpoint AND e.status = 'disabled' AND e.deleted_at IS NULL)"""


def asked_to_end_it_ends(scene: Scene, told: Told) -> None:
    """Nobody sends what was cancelled while it was in the air, but who is told to by its owner."""
    if not told_of(told, "retry"):
        assert Answer.TAKEN not in [each for answers in told_of(told, "claim") for each in answers.values()]
    claim_has_one_end(scene, told)


def is_looked_at_in_time(scene: Scene, told: Told) -> None:
    """The relay moves what it has published, and not what somebody has claimed and put back meanwhile."""
    if not told_of(told, "relay") and any(told_of(told, "claim and fail")):
        late = """SELECT o.ref FROM duehook.outbox o JOIN duehook.deliveries d ON d.id = o.ref
                   WHERE d.status = 'scheduled' AND NOT d.parked AND o.look_at > d.next_attempt_at"""
        assert not rows(scene.engine, late), "its retry is pushed out"
    delivery_has_one_owner(scene, told)


def wakes_up(scene: Scene) -> None:
    """Look at what is due, as workers would, until nothing is: no delivery is left that nobody looks at."""
    for _ in range(MOST_LOOKS):
        with scene.engine.connect() as connection:
            found = [tuple(each) for each in connection.execute(text(_UNTOUCHED))]
        if not found:
            break
        at = {ref: 200 for kind, ref in found if kind == "endpoint"}
        slots = pacing.attend(scene.engine, at).slots if at else {}
        ids = {ref for kind, ref in found if kind == "delivery"} | {ref for some in slots.values() for _, ref in some}
        if ids:
            away = core.claim(scene.engine, sorted(ids), TERMS, ROOM).turned_away
            if away:
                core.park(scene.engine, sorted(away))
        scene.stage.pass_time(minutes=1)
    left = rows(scene.engine, _LEFT)
    assert not left, f"nobody looks at {left}"


def job_goes_on(scene: Scene, told: Told) -> None:
    """Whatever came in between, the job comes to its end."""
    for _ in range(MOST_LOOKS):
        if row(scene.engine, "jobs", "seq", scene.job)["status"] not in ("queued", "running"):
            break
        scene.stage.pass_time(minutes=1)
        lapsed = rows(scene.engine, "SELECT id FROM duehook.deliveries WHERE status = 'leased'")
        core.claim(scene.engine, lapsed, TERMS, ROOM)  # an erasure waits for what is in the air
        jobs.advance(scene.engine, [scene.job])
    else:
        raise AssertionError("the job comes to no end")
    delivery_has_one_owner(scene, told)


def event_fans_out_once(scene: Scene, told: Told) -> None:
    """Fanned out or cancelled; to the endpoints of that moment; what is cancelled is sent to nobody."""
    now = row(scene.engine, "events", "seq", scene.event)
    taken = [each[scene.event] for each in told_of(told, "fan out")].count(Answer.TAKEN)
    assert taken <= 1 and (taken == 1) == (now["fanned_out_at"] is not None)
    if now["fanned_out_at"] is None and now["cancelled_at"] is None:
        assert events.fan_out(scene.engine, [scene.event]).answers == {scene.event: Answer.TAKEN}
    states = rows(scene.engine, "SELECT status FROM duehook.deliveries WHERE event = :event", event=scene.event)
    if told_of(told, "cancel the event"):
        assert set(states) <= {"cancelled"}
    delivery_has_one_owner(scene, told)


def nothing(_: Scene, __: Told) -> None:
    """The invariants say it all."""


def mend(scene: Scene) -> None:
    """What upkeep does when everybody has gone home."""
    for each in Walk:
        ACTIONS[f"audit the {AUDITED[each]}"](scene, scene.engine)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Who may meet in a scene: each two, and of three those that the suite has time for."""

    make: Callable[[Stage], Scene]
    check: Callable[[Scene, Told], None]
    actions: Sequence[str]
    triples: Sequence[tuple[str, str, str]] = ()
    damaged: bool = False  # so that the audit has something to do, and ends it


OF_RESERVATION = ("confirm", "expire", "release", "confirm in vain", "hold the same")
AUDIT_RESERVATION = ("audit the rows", "audit the reservations")
RECORD = ("record success", "record failure", "record death")
CANCEL = ("cancel the event", "cancel the delivery")
AUDIT_DELIVERY = ("audit the rows", "audit the deliveries")
PARKING = ("park", "attend", "claim")
ENDPOINT = ("disable", "delete the endpoint", "change its URL")

MEETINGS = {
    "a held reservation": Meeting(
        scenes.held,
        reservation_has_one_end,
        (*OF_RESERVATION, "time passes", *AUDIT_RESERVATION, "relay"),
        (("confirm", "expire", "time passes"),),
    ),
    "an overdue reservation": Meeting(
        scenes.overdue,
        reservation_has_one_end,
        (*OF_RESERVATION, *AUDIT_RESERVATION, "relay"),
    ),
    "a confirmed reservation": Meeting(
        scenes.confirmed, reservation_has_one_end, (*OF_RESERVATION, *AUDIT_RESERVATION)
    ),
    "a delivery that is due": Meeting(
        scenes.scheduled,
        delivery_has_one_owner,
        (
            *("claim", "cancel the event", "park", "cancel the delivery", "retry", *ENDPOINT),
            *("hear that it is gone", "hear of trouble", "relay", *AUDIT_DELIVERY, "audit the fan-outs"),
            *("limit its rate", "limit it to one in flight", "rotate"),
        ),
    ),
    "two deliveries for one place": Meeting(
        scenes.limited,
        delivery_has_one_owner,
        ("claim", "park", "attend", *ENDPOINT, "limit its rate", "hear of trouble", "cancel the event", "retry"),
    ),
    "a delivery in the air": Meeting(
        scenes.leased,
        claim_has_one_end,
        (
            *(*RECORD, "claim", "give back", "renew", "abandon", *CANCEL, "retry", *ENDPOINT),
            *("limit it to one in flight", "rotate", "hear that it is gone", "relay", *AUDIT_DELIVERY),
        ),
    ),
    "a delivery whose lease has ended": Meeting(
        scenes.lapsed,
        claim_has_one_end,
        (
            "claim",
            "record failure",
            "record success",
            "record death",
            "give back",
            "renew",
            "abandon",
            *CANCEL,
            "retry",
            *ENDPOINT,
            "relay",
            *AUDIT_DELIVERY,
        ),
        (("claim", "record success", "record failure"),),
    ),
    "a lapsed delivery that was asked to end": Meeting(
        scenes.asked_to_end, asked_to_end_it_ends, ("claim", *RECORD, "give back", "abandon", "retry", *CANCEL)
    ),
    "a parked delivery": Meeting(
        scenes.parked,
        delivery_has_one_owner,
        (
            *(*PARKING, *CANCEL, "retry", *ENDPOINT, "limit its rate", "hear of trouble", "hear of success", "relay"),
            *("the broker was emptied", "audit the rows", "audit the endpoints"),
        ),
    ),
    "a parked delivery of a disabled endpoint": Meeting(
        scenes.parked_and_disabled,
        delivery_has_one_owner,
        ("attend", "claim", "enable", "delete the endpoint", "change its URL", *CANCEL, "retry", "relay"),
    ),
    "one parked no more and one to be": Meeting(
        scenes.one_parked,
        delivery_has_one_owner,
        (*PARKING, "enable", *ENDPOINT, "audit the rows", "audit the endpoints"),
    ),
    "a dead letter that is to be redriven": Meeting(
        scenes.dead,
        job_goes_on,
        (
            *("retry", "redrive", "do the job's step", "cancel the job", *CANCEL, "disable", "delete the endpoint"),
            *("relay", "audit the rows", "audit the jobs"),
        ),
    ),
    "an event that is to be replayed": Meeting(
        scenes.replayed,
        job_goes_on,
        ("do the job's step", "cancel the job", "retry", *CANCEL, "delete the endpoint", "change its types"),
    ),
    "an event that is to be erased": Meeting(
        scenes.erased,
        job_goes_on,
        ("do the job's step", "cancel the job", "claim", "park", *CANCEL, "retry", "delete the endpoint"),
    ),
    "an event whose time has come": Meeting(
        scenes.waiting,
        event_fans_out_once,
        (
            *("fan out", "cancel the event", "another endpoint", "delete the endpoint", "disable", "change its types"),
            *("relay", "audit the rows", "audit the events", "audit the fan-outs"),
        ),
    ),
    "a delivery whose wake-up is published": Meeting(
        scenes.taken,
        is_looked_at_in_time,
        (
            *("move what was published", "claim", "claim and fail", "park", *CANCEL, "retry", "delete the endpoint"),
            *("the broker was emptied", "relay", "audit the rows"),
        ),
    ),
    "a delivery that has lost its row": Meeting(
        scenes.lost_row, nothing, (*AUDIT_DELIVERY, "claim", "park", *CANCEL, "retry", "relay"), damaged=True
    ),
    "a delivery whose row says wrong": Meeting(
        scenes.wrong_row, nothing, (*AUDIT_DELIVERY, "claim", "park", *CANCEL, "retry", "relay"), damaged=True
    ),
    "a dead letter that has a row": Meeting(
        scenes.row_of_nothing, nothing, (*AUDIT_DELIVERY, "retry", "redrive", "claim", *CANCEL, "relay"), damaged=True
    ),
}


def meetings(*, wide: bool = False) -> list[tuple[str, tuple[str, ...]]]:
    """Each of the `LEADING` actions of a scene with every other and with itself, and the chosen three.

    `wide`: every two and every three.
    """
    return [
        (scene, actors)
        for scene, meeting in MEETINGS.items()
        for actors in (
            *(
                pair
                for pair in combinations_with_replacement(meeting.actions, 2)
                if wide or (pair[0] in meeting.actions[:LEADING] and (scene, pair) not in LONG)
            ),
            *(combinations_with_replacement(meeting.actions, 3) if wide else meeting.triples),
        )
    ]
