"""`duehook status`."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from app.cli.finding import find_service
from app.cli.options import Json
from app.cli.printing import fields, show_json

if TYPE_CHECKING:
    from app.core.status import Status
    from app.ledger.status import Count


def status(json: Json = False) -> None:
    """Show how late both clocks are, what waits, flies and died, and how workers, broker and database are."""
    from app.cli.ledger import ledger_of
    from app.cli.watch import look
    from app.core.status import read

    settings = find_service()
    with ledger_of(settings) as engine:
        found = read(engine, lease=settings.lease)
    broker = look(settings)
    if json:
        show_json(_document(found) | broker.document())
    else:
        print(*fields(_lines(found) | broker.lines()), sep="\n")


def _document(found: "Status") -> dict[str, Any]:
    counts = {"in_flight": found.in_flight, "dead": found.dead}
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
    }


def _lines(found: "Status") -> dict[str, str]:
    return {
        "oldest due reservation": _age(found.oldest_reservation),
        "oldest due delivery": _age(found.oldest_delivery),
        **{f"backlog of {lane}": _number(count) for lane, count in found.backlog.items()},
        "in flight": _number(found.in_flight),
        "dead": _number(found.dead),
        "database": f"{found.connections.used} of {found.connections.most} connections",
    }


def _seconds(age: timedelta | None) -> float:
    return 0.0 if age is None else age.total_seconds()


def _age(age: timedelta | None) -> str:
    return "none" if age is None else f"{age.total_seconds():.1f} s ago"


def _number(count: "Count") -> str:
    return f"{count.number} or more" if count.more else str(count.number)
