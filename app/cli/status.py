"""`duehook status`."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from app.cli.finding import find_service
from app.cli.options import Json
from app.cli.printing import fields, rfc3339, show_json
from app.domain.wakeups import Adapter

if TYPE_CHECKING:
    from app.core.status import Status
    from app.core.wakeups import Fleet
    from app.ledger.processes import Present
    from app.ledger.status import Count


def status(json: Json = False) -> None:
    """Show how late both clocks are, what waits, flies and died, who notices and works, how broker and database are."""
    from app.cli.ledger import ledger_of
    from app.cli.watch import look
    from app.core.status import read

    settings = find_service()
    with ledger_of(settings) as engine:
        found = read(engine, lease=settings.lease)
    broker = look(settings, needed=found.shares[Adapter.QUEUE] > 0)
    if json:
        show_json(_document(found) | {"broker": broker.document()})
        return
    print(*fields(_lines(found) | {"broker": broker.line()}), sep="\n")
    if faults := [*_lacking(found), *_troubled(found.fleet)]:
        print("", *faults, sep="\n")


def _document(found: "Status") -> dict[str, Any]:
    counts = {"in_flight": found.in_flight, "parked": found.parked, "dead": found.dead}
    return {
        "reservation_oldest_due_age_seconds": _seconds(found.oldest_reservation),
        "delivery_oldest_due_age_seconds": _seconds(found.oldest_delivery),
        "backlog": {lane.value: count.number for lane, count in found.backlog.items()},
        **{name: count.number for name, count in counts.items()},
        "at_least": [
            *(f"backlog.{lane}" for lane, count in found.backlog.items() if count.more),
            *(name for name, count in counts.items() if count.more),
        ],
        "database": {"connections_used": found.connections.used, "connections_max": found.connections.most},
        "workers": [_node(each) for each in found.fleet.workers()],
        "adapters": {
            adapter.value: {
                "share": share,
                "processes": found.fleet.count(adapter),
                "lacking": found.fleet.lacking(adapter) if share else [],
            }
            for adapter, share in found.shares.items()
        },
        "processes": [
            *(_process(each, silent=False) for each in found.fleet.there),
            *(_process(each, silent=True) for each in found.fleet.silent),
        ],
    }


def _process(each: "Present", *, silent: bool) -> dict[str, Any]:
    return {
        "role": each.who.role,
        "host": each.who.host,
        "pid": each.who.pid,
        "version": each.who.version,
        "started_at": rfc3339(each.started_at),
        "seen_seconds_ago": each.silent.total_seconds(),
        "silent": silent,
        "unready": each.unready,
    }


def _node(worker: "Present") -> str:
    lanes = worker.who.role.split()[-1]
    return f"{lanes}-{worker.who.pid}@{worker.who.host}"


def _lines(found: "Status") -> dict[str, str]:
    return {
        "oldest due reservation": _age(found.oldest_reservation),
        "oldest due delivery": _age(found.oldest_delivery),
        **{f"backlog of {lane}": _number(count) for lane, count in found.backlog.items()},
        "in flight": _number(found.in_flight),
        "parked": _number(found.parked),
        "dead": _number(found.dead),
        "noticed by": ", ".join(f"{adapter} {share} %" for adapter, share in found.shares.items()),
        "processes": ", ".join(f"{role} {number}" for role, number in found.fleet.roles().items()) or "none seen",
        "database": f"{found.connections.used} of {found.connections.most} connections",
    }


def _lacking(found: "Status") -> list[str]:
    """A sentence for each part of the work that nobody does."""
    return [
        f"nobody {_does(who, share)}: {found.fleet.unseen(who)}"
        for adapter, share in found.shares.items()
        if share
        for who in found.fleet.lacking(adapter)
    ]


def _does(who: str, share: int) -> str:
    return "does all that the queue notices" if who.startswith("worker") else f"notices {share} %"


def _troubled(fleet: "Fleet") -> list[str]:
    silent = [f"{_name(each)} silent for {each.silent.total_seconds():.0f} s" for each in fleet.silent]
    return silent + [f"{_name(each)} takes no work: {each.unready}" for each in fleet.there if each.unready]


def _name(each: "Present") -> str:
    return f"{each.who.role} {each.who.pid} on {each.who.host}"


def _seconds(age: timedelta | None) -> float:
    return 0.0 if age is None else age.total_seconds()


def _age(age: timedelta | None) -> str:
    return "none" if age is None else f"{age.total_seconds():.1f} s ago"


def _number(count: "Count") -> str:
    return f"{count.number} or more" if count.more else str(count.number)
