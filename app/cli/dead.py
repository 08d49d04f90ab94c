"""`duehook dead list|show|redrive`."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.finding import find_service
from app.cli.options import Json, check_tenant
from app.cli.printing import fail, fields, rfc3339, show_json, show_table, wrong_use
from app.cli.things import show_attempts
from app.domain.identity import number, public_id
from app.domain.states import DeadReason
from app.domain.steps import FASTEST, SLOWEST

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from app.ledger.by_hand import Attempt, Delivery
    from app.ledger.dead_letters import Filter

MOST_SHOWN = 500
MOST_ATTEMPTS = 100
app = typer.Typer(help="Dead letters: deliveries that were given up.", no_args_is_help=True)
Tenant = Annotated[str, typer.Option(help="Whose.")]
Reason = Annotated[
    str | None, typer.Option(metavar="REASON", help=f"Only those that died of it: {', '.join(DeadReason)}.")
]
Endpoint = Annotated[str | None, typer.Option(metavar="ID", help="Only those to this endpoint.")]
DeliveryId = Annotated[str, typer.Argument(metavar="ID", help="Of the delivery, dlv_…")]


@app.command("list", epilog="Example: duehook dead list --reason gone --json")
def list_(
    tenant: Tenant = "default",
    reason: Reason = None,
    endpoint: Endpoint = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_SHOWN, help="How many at most.")] = 50,
    json: Json = False,
) -> None:
    """Show dead letters, the last to die first."""
    from app.cli.ledger import ledger_of

    wanted = _filter(tenant, reason, endpoint)
    with ledger_of(find_service()) as engine, engine.begin() as connection:
        found = _newest(connection, tenant, wanted, limit)
    if json:
        show_json(found)
    else:
        show_table(
            ("id", "died", "reason", "attempts", "endpoint", "event"),
            [
                (each["id"], each["died_at"], each["reason"], each["attempt"], each["endpoint_id"], each["event_id"])
                for each in found
            ],
        )


@app.command(epilog="Example: duehook dead show dlv_66f1c20b3a00001")
def show(delivery_id: DeliveryId, tenant: Tenant = "default", json: Json = False) -> None:
    """Show one with its attempts, in the order they were made."""
    from app.cli.ledger import ledger_of
    from app.ledger import by_hand, dead_letters

    key = _number(delivery_id)
    with ledger_of(find_service()) as engine, engine.begin() as connection:
        found, died = by_hand.find(connection, tenant, key), dead_letters.died(connection, [key])
        attempts = by_hand.attempts(connection, key, most=MOST_ATTEMPTS)
    if found is None or key not in died:
        fail(f"there is no dead letter {delivery_id!r} of the tenant {tenant!r}.")
    shown = {**_shown(found, died[key]), "attempts": [_attempt(each) for each in attempts]}
    if json:
        show_json(shown)
        return
    attempts_shown = shown.pop("attempts")
    print(*fields(shown), sep="\n")
    show_attempts(attempts_shown)


@app.command(epilog="Example: duehook dead redrive --reason attempts_exhausted --rate 50 --dry-run")
def redrive(
    delivery_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One delivery, instead of a filter.")
    ] = None,
    tenant: Tenant = "default",
    reason: Reason = None,
    endpoint: Endpoint = None,
    rate: Annotated[float | None, typer.Option(help="Re-opened a second at most; 1,000 when left out.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what matches, and do nothing.")] = False,
    json: Json = False,
) -> None:
    """Try one again, or all that match and are dead now. It goes on by itself; Ctrl-C only stops the watching."""
    from app.cli.ledger import ledger_of
    from app.cli.redriving import count, redrive_all, redrive_one

    wanted = _filter(tenant, reason, endpoint)
    if rate is not None and not SLOWEST <= rate <= FASTEST:
        wrong_use(f"{rate:g} is not a rate: use {SLOWEST:g} to {FASTEST:g} a second.")
    if delivery_id is not None and (reason or endpoint or rate or dry_run):
        wrong_use("one delivery takes no filter, no --rate and no --dry-run.")
    with ledger_of(find_service()) as engine:
        if delivery_id is not None:
            redrive_one(engine, tenant, _number(delivery_id), json=json)
        elif dry_run:
            count(engine, tenant, wanted, json=json)
        else:
            redrive_all(engine, tenant, wanted, rate, json=json)


def _filter(tenant: str, reason: str | None, endpoint: str | None) -> "Filter":
    from app.ledger.dead_letters import Filter

    check_tenant(tenant)
    if reason is not None and reason not in list(DeadReason):
        wrong_use(f"{reason!r} is not a reason: use {', '.join(DeadReason)}.")
    seq = None if endpoint is None else number("end", endpoint)
    if endpoint is not None and seq is None:
        wrong_use(f"{endpoint!r} is not the id of an endpoint: use one like end_66f1c20b3a00001.")
    return Filter(reason, seq)


def _number(delivery_id: str) -> int:
    key = number("dlv", delivery_id)
    if key is None:
        wrong_use(f"{delivery_id!r} is not the id of a delivery: use one like dlv_66f1c20b3a00001.")
    return key


def _newest(connection: "Connection", tenant: str, wanted: "Filter", limit: int) -> list[dict[str, Any]]:
    """Page after page: a filter's may be short, or empty, and yet go on."""
    from app.ledger import by_hand, dead_letters

    found: list[dict[str, Any]] = []
    below: dead_letters.Place | None = dead_letters.LAST
    while below is not None and len(found) < limit:
        places, below = dead_letters.newest(connection, tenant, wanted, limit=limit - len(found), below=below)
        rows = by_hand.load(connection, [each.delivery for each in places])
        found += [_shown(rows[each.delivery], each.died_at) for each in places if each.delivery in rows]
    return found


def _shown(delivery: "Delivery", died_at: datetime) -> dict[str, Any]:
    return {
        "id": public_id("dlv", delivery.id),
        "event_id": public_id("evt", delivery.event),
        "endpoint_id": public_id("end", delivery.endpoint),
        "reason": delivery.reason,
        "attempt": delivery.attempt,
        "created_at": rfc3339(delivery.created_at),
        "died_at": rfc3339(died_at),
    }


def _attempt(attempt: "Attempt") -> dict[str, Any]:
    return {
        "number": attempt.number,
        "outcome": attempt.outcome,
        "status_code": attempt.status_code,
        "started_at": rfc3339(attempt.started_at),
        "ended_at": None if attempt.ended_at is None else rfc3339(attempt.ended_at),
        "address": attempt.address,
        "error": attempt.error,
        "excerpt": None if attempt.excerpt is None else attempt.excerpt.decode(errors="replace"),
        "location": attempt.location,
    }
