"""What is stored sealed brought under the first key of the list, beside whoever reads, sends and changes it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Engine

from app.ledger import resealing, service
from app.ledger.database import in_transaction
from app.ledger.resealing import Part, Sealed
from app.ledger.sealing import Sealer, WrongKeyError
from app.ledger.walking import TOP

MOST = 200  # rows in one transaction
PASSES = 10
PAUSE = 1.0  # seconds until the next pass, when somebody held what this one found


@dataclass(slots=True)
class Resealed:
    """What was done; `clean` when a last look found nothing under an older key that one of ours opens.

    `unopened` names what is in use and none of our keys opens: the endpoint, and which part of it. `moved` when the
    first key is the ledger's now and was not before.
    """

    changed: dict[Part, int] = field(default_factory=lambda: dict.fromkeys(Part, 0))
    unopened: list[tuple[str, Part]] = field(default_factory=list)
    clean: bool = False
    moved: bool = False


def reseal_all(engine: Engine, sealer: Sealer, rest: Callable[[float], None] = time.sleep) -> Resealed:
    """Seal everything anew that is not under the first key, and make that key the ledger's when nothing else is left.

    In short transactions, each of which counts: interrupted, the next call goes on with what is left. Whoever changes
    a value meanwhile has his way. A repeat changes nothing.
    """
    done = Resealed()
    for _ in range(PASSES):
        older, changed = _pass(engine, sealer, done)
        if not older:
            done.clean = True
            break
        if changed < older:
            rest(PAUSE)
    if done.clean and not done.unopened:
        done.moved = in_transaction(engine, lambda connection: service.move_key(connection, sealer.fingerprints))
    return done


def _pass(engine: Engine, sealer: Sealer, done: Resealed) -> tuple[int, int]:
    """Look at everything once; returns how much of it was under an older key, and how much of that is no more."""
    done.unopened.clear()
    older = changed = 0
    for part in Part:
        for read in _stretches(engine, part):
            anew = _anew(sealer, part, read, done)
            if anew:
                now = in_transaction(engine, partial(resealing.reseal, part=part, read=read, anew=anew))
                done.changed[part] += now
                older, changed = older + len(anew), changed + now
    return older, changed


def _stretches(engine: Engine, part: Part) -> Iterator[list[Sealed]]:
    """The newest first: a walk that met what is made meanwhile might never end."""
    below = TOP
    while read := in_transaction(engine, partial(resealing.stretch, part=part, below=below, most=MOST)):
        yield read
        below = read[-1].seq


def _anew(sealer: Sealer, part: Part, read: list[Sealed], done: Resealed) -> dict[int, bytes]:
    """The new values of those that need one. Outside any transaction: it is work, and nobody should wait for it."""
    anew = {}
    for each in read:
        try:
            value = sealer.reseal(each.sealed)
        except WrongKeyError:
            if each.in_use:
                done.unopened.append((each.endpoint, part))
            continue
        if value is not None:
            anew[each.seq] = value
    return anew
