"""One turn: a contestant is started and warm, gets a backlog, and has a window to send it."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from app.local.errors import LocalServiceError
from bench.cpu import machine_seconds
from bench.peers.contestant import Contestant, Running
from bench.peers.ground import Site
from bench.peers.plan import Plan
from bench.throughput import per_thousand

LOOK_SECONDS = 0.1
CALM_SECONDS = 0.3
CALM_CORES = 0.15  # of all processes together: less is what those that have nothing to do need
PATIENCE = 60.0
NOT_SENDING = ("producer", "sink")


@dataclass(frozen=True, slots=True)
class Figures:
    """Of `deliveries` handed in at `accepted_per_second`, `sent` had arrived when the window ended, or all.

    `per_second` is from when all were handed in, and the workers let go, to the last receipt or the window's end.
    `accepting` is CPU seconds per 1,000 handed in, until then, of all processes but the sink; `cpu` per 1,000 sent,
    from then on, by kind of process, and `sending` their sum without producer and sink. `others` is how many cores
    were busy with something else meanwhile. `missing` was lost, or waited still when the window ended.
    """

    deliveries: int
    sent: int
    accepted_per_second: float
    per_second: float
    accepting: float
    sending: float
    cpu: Mapping[str, float]
    others: float
    missing: int
    repeated: int


class Receipts:
    """What has arrived of the deliveries of a turn."""

    def __init__(self, site: Site) -> None:
        self._receiver = site.receiver
        self.last = 0.0
        self.came: set[str] = set()
        self.repeated = 0

    def look(self, wanted: Collection[str]) -> int:
        """Take what is new; how many of `wanted` there are by now."""
        for each in self._receiver.arrivals():
            if each.event not in wanted:
                continue
            if each.event in self.came:
                self.repeated += 1
            else:
                self.came.add(each.event)
                self.last = max(self.last, each.at)
        return len(self.came)

    def wait(self, wanted: Collection[str], until: float) -> None:
        """Return once all have come, or it is `until`."""
        while self.look(wanted) < len(wanted) and time.time() < until:
            time.sleep(LOOK_SECONDS)


def take(contestant: Contestant, site: Site, plan: Plan) -> Figures:
    """Raises LocalServiceError when it doesn't send at all."""
    with contestant.running(site.cleared(plan.endpoints)) as running:
        _warm_up(contestant, running, site, plan.warm_up)
        return _measure(running, site, plan, max(1, round(plan.deliveries * contestant.share)))


def _warm_up(contestant: Contestant, running: Running, site: Site, number: int) -> None:
    """So that connections, plans and keys are made, and everybody is there."""
    receipts, wanted = Receipts(site), running.enqueue(number)
    receipts.wait(wanted, time.time() + PATIENCE)
    if len(receipts.came) < number:
        raise LocalServiceError(f"{contestant.title} sent {len(receipts.came)} of {number} within {PATIENCE:g} s.")
    until = time.monotonic() + PATIENCE
    while _cores_busy(running, site) > CALM_CORES and time.monotonic() < until:
        pass


def _cores_busy(running: Running, site: Site) -> float:
    before = sum(_cpu(running, site).values())
    time.sleep(CALM_SECONDS)
    return (sum(_cpu(running, site).values()) - before) / CALM_SECONDS


def _measure(running: Running, site: Site, plan: Plan, number: int) -> Figures:
    receipts = Receipts(site)
    running.hold()
    try:
        machine, began, before = machine_seconds(), time.time(), _cpu(running, site)
        wanted = running.enqueue(number)
        handed_in, accepted = time.time(), _cpu(running, site)
    finally:
        running.release()
    receipts.wait(wanted, handed_in + plan.window)
    if len(receipts.came) == number:
        time.sleep(plan.afterwards)
    after, ended, busy = _cpu(running, site), time.time(), machine_seconds() - machine
    sent = receipts.look(wanted)
    seconds = (receipts.last if sent == number else ended) - handed_in
    sending = {kind: after[kind] - accepted[kind] for kind in after}
    accepting = {kind: accepted[kind] - before[kind] for kind in after if kind != "sink"}
    ours = sum(after.values()) - sum(before.values())
    return Figures(
        deliveries=number,
        sent=sent,
        accepted_per_second=round(number / (handed_in - began)),
        per_second=round(sent / seconds, 1),
        accepting=per_thousand({"all": sum(accepting.values())}, number)["all"],
        sending=_sending(sending, sent),
        cpu=per_thousand(sending, max(sent, 1)),
        others=round(max(0.0, busy - ours) / (ended - began), 2),
        missing=number - sent,
        repeated=receipts.repeated,
    )


def _sending(cpu: Mapping[str, float], sent: int) -> float:
    total = sum(seconds for kind, seconds in cpu.items() if kind not in NOT_SENDING)
    return per_thousand({"all": total}, max(sent, 1))["all"]


def _cpu(running: Running, site: Site) -> Mapping[str, float]:
    return {**running.cpu(), **site.cpu()}
