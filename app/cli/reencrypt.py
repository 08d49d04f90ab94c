"""`duehook keys reencrypt`: the end of a rotation of DUEHOOK_SECRETS_KEY."""

from typing import TYPE_CHECKING

from app.cli.finding import find_service
from app.cli.options import Json
from app.cli.printing import fail, fields, show_json, show_table
from app.domain.auditing import Action
from app.local.up.home import secrets_key_of
from app.local.user import command_actor

if TYPE_CHECKING:
    from app.core.resealing import Resealed
    from app.ledger.sealing import Sealer

EPILOG = "Example: DUEHOOK_SECRETS_KEY=NEW,OLD duehook keys reencrypt --json"


def reencrypt(json: Json = False) -> None:
    """Seal every secret and header anew under the first of DUEHOOK_SECRETS_KEY.

    Safe beside everything that runs. Interrupted, run it again: it goes on with
    what is left, and a run that finds nothing changes nothing.

    A rotation from OLD to NEW, in this order:
    1. DUEHOOK_SECRETS_KEY=OLD,NEW for every process, and restart each.
    2. NEW,OLD for every process, and restart each.
    3. duehook keys reencrypt, with NEW,OLD: from now on a process needs NEW.
    4. The same again: it must find nothing to do.
    5. NEW alone for every process, and restart each.

    Without step 1 a process that has OLD alone gives back, while others have
    NEW already, what it can't sign, and answers 503: late, but nothing is lost.
    With `duehook up` the list is in secrets.key of its home.
    """
    from app.cli.ledger import ledger_of
    from app.core.resealing import reseal_all
    from app.ledger import audit, service
    from app.ledger.sealing import Sealer

    settings = find_service()
    keys = settings.secrets_key or secrets_key_of(settings.home)
    if not keys:
        fail("DUEHOOK_SECRETS_KEY is not set; set it to the list of keys, the new one first.")
    sealer = Sealer([key.get_secret_value() for key in keys])
    with ledger_of(settings) as engine:
        with engine.begin() as connection:
            service.check_keys(connection, sealer.fingerprints)
            audit.write(  # first: what follows is many transactions, and none without an entry before it
                connection, command_actor(), audit.EVERY_TENANT, Action.KEYS_REENCRYPTED, key=sealer.fingerprints[0]
            )
        done = reseal_all(engine, sealer)
    _show(done, sealer, json)
    _judge(done)


def _show(done: "Resealed", sealer: "Sealer", json: bool) -> None:
    from app.ledger.resealing import Part

    told = {
        "headers_resealed": done.changed[Part.HEADERS],
        "secrets_resealed": done.changed[Part.SECRET],
        "key": sealer.fingerprints[0],
        "key_moved": done.moved,
    }
    if json:
        unopened = [{"endpoint_id": endpoint, "part": part} for endpoint, part in done.unopened]
        show_json({**told, "unopened": unopened})
        return
    print(*fields(told), sep="\n")
    if done.unopened:
        show_table(("endpoint", "not opened by any key"), done.unopened)


def _judge(done: "Resealed") -> None:
    if done.unopened:
        number = len({endpoint for endpoint, _ in done.unopened})
        whose = done.unopened[0][0] if number == 1 else f"{number} endpoints"
        fail(
            f"no key of DUEHOOK_SECRETS_KEY opens what is sealed of {whose}; add the key that it was sealed under, or"
            " rotate the secret with overlap_seconds 0 and set the headers anew, and run this again."
        )
    if not done.clean:
        fail(
            "values under an older key went on appearing, or were held; see that every process has the new key first"
            " in DUEHOOK_SECRETS_KEY, and run this again."
        )
