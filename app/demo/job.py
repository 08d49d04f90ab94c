"""The main job: register, hold, confirm, ship, while things go wrong; wait until all is settled; judge."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from app.demo.display import Display
from app.demo.faults import Faults
from app.demo.plan import SUBSCRIPTIONS, Plan
from app.demo.producer import Producer
from app.demo.receivers import ReceiverProcess
from app.demo.report import Repairs, Report, lag_of
from app.demo.service import Service
from app.demo.tally import Tally
from app.demo.verdict import audit_repairs, judge_receiver, judge_reservations, read_facts
from app.demo.watch import until, watch
from app.local.errors import LocalServiceError


class Job:
    """On a running service, with listening receivers."""

    def __init__(
        self, plan: Plan, display: Display, service: Service, receivers: Mapping[str, ReceiverProcess]
    ) -> None:
        self._plan = plan
        self._display = display
        self._service = service
        self._receivers = receivers
        self._tally = Tally()
        self._faults = Faults(plan, self._tally, service, receivers, display.tell)
        self._unfinished: list[str] = []

    async def run(self) -> Report:
        """Register, work, wait until all is settled or patience ends, judge."""
        before = self._service.connection
        async with Producer(before.api_url, before.api_key, self._tally) as producer:
            for name, receiver in self._receivers.items():
                receiver.tell(secret=await producer.register(receiver.url, SUBSCRIPTIONS[name]))
            self._display.tell(f"Ready. Seed {self._plan.seed}.")
            began = time.monotonic()
            await self._work_watched(producer, began)
        return self._judge(time.monotonic() - began, before.pids)

    async def _work_watched(self, producer: Producer, began: float) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._watch())
                await self._work(producer, began)
                watching.cancel()
        except* LocalServiceError as errors:
            raise _first_of(errors) from None

    async def _watch(self) -> None:
        def show() -> None:
            self._display.show(self._tally, self._plan)

        await watch(self._tally, self._service.connection.database_url, self._receivers, show)

    async def _work(self, producer: Producer, began: float) -> None:
        try:
            async with asyncio.timeout(self._plan.patience):
                async with asyncio.TaskGroup() as group:
                    group.create_task(producer.hold_all(self._plan, began))
                    group.create_task(producer.ship_all(self._plan, began))
                    group.create_task(self._faults.run())
                await until(lambda: self._tally.settled(self._plan))
        except TimeoutError:
            self._unfinished.append(
                f"It was not done after {self._plan.patience:g} s: {self._tally.held} reservations held,"
                f" {self._tally.shipped} orders shipped, {len(self._faults.happened)} of 4 faults come about,"
                f" {self._tally.open} things open in the ledger."
            )

    def _judge(self, seconds: float, pids: Mapping[str, object]) -> Report:
        after = self._service.connection
        facts = read_facts(after.database_url)
        found = {
            name: judge_receiver(name, receiver.url, receiver.ledger, facts, self._plan)
            for name, receiver in self._receivers.items()
        }
        return Report(
            seed=self._plan.seed,
            seconds=round(seconds, 1),
            receivers=found,
            reservations=judge_reservations(facts, self._plan, self._tally.confirmed, self._tally.late),
            delivery_lag=lag_of(facts.delivery_lags),
            faults=self._faults.happened,
            unfinished=self._unfinished,
            repairs=Repairs(
                claims_taken_over=sum(each.outcomes.get("abandoned", 0) for each in found.values()),
                roles_restarted=sum(pids[role] != after.pids.get(role) for role in pids),
                audit_repairs=audit_repairs(Path(log) for log in after.logs.values()),
            ),
        )


def _first_of(errors: ExceptionGroup[LocalServiceError]) -> LocalServiceError:
    first = errors.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first
