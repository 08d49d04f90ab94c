"""What goes wrong meanwhile, each at a moment when it hurts."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping

import redis

from app.demo.plan import Plan
from app.demo.receivers import ReceiverProcess
from app.demo.service import Service
from app.demo.tally import Tally
from app.demo.watch import until

THROTTLED_SECONDS, RETRY_AFTER = 4.0, 2
STALLS = 24
VICTIM = "worker-delivery"


class Faults:
    """`run` lets each of them happen once; `happened` says in what words."""

    def __init__(
        self,
        plan: Plan,
        tally: Tally,
        service: Service,
        receivers: Mapping[str, ReceiverProcess],
        tell: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._tally = tally
        self._service = service
        self._receivers = receivers
        self._tell = tell
        self.happened: list[str] = []

    async def run(self) -> None:
        """All four; returns when the last has healed."""
        async with asyncio.TaskGroup() as group:
            for fault in (self._throttle, self._stall_and_kill, self._empty_redis):
                group.create_task(fault())

    async def _throttle(self) -> None:
        await self._effects("warehouse", 0.1)
        self._receivers["warehouse"].tell(throttle=THROTTLED_SECONDS, retry_after=RETRY_AFTER)
        self._say(f"The warehouse answers 429 with Retry-After: {RETRY_AFTER} for {THROTTLED_SECONDS:g} s.")
        await until(lambda: self._tally.answers("warehouse", "throttled") > 0)

    async def _stall_and_kill(self) -> None:
        """The kill comes while requests are in the air whose effect has happened and whose answer never comes."""
        await self._effects("notifications", 0.15)
        stalls = min(STALLS, self._tally.expected("notifications", self._plan) // 4)
        self._receivers["notifications"].tell(stall=stalls)
        self._say(f"Notifications applies {stalls} events and lets the sender time out.")
        await until(lambda: self._tally.answers("notifications", "stalled") >= stalls // 2)
        await self._kill_a_worker()

    async def _kill_a_worker(self) -> None:
        before = self._service.connection.pids[VICTIM]
        os.kill(before[0], signal.SIGKILL)
        self._say(f"A delivery worker (pid {before[0]}) is killed with SIGKILL, requests in the air.")
        await until(lambda: self._is_replaced(before[0], len(before)))

    def _is_replaced(self, pid: int, count: int) -> bool:
        now = self._service.connection.pids[VICTIM]
        return pid not in now and len(now) == count

    async def _empty_redis(self) -> None:
        await until(lambda: self._tally.held >= 0.5 * self._plan.reservations)
        with redis.Redis.from_url(self._service.connection.broker_url) as broker:
            keys = await asyncio.to_thread(broker.dbsize)
            await asyncio.to_thread(broker.flushall)
        self._say(f"Redis is emptied of all its {keys} keys.")

    async def _effects(self, name: str, share: float) -> None:
        await until(lambda: self._tally.keys(name) >= share * self._tally.expected(name, self._plan))

    def _say(self, what: str) -> None:
        self.happened.append(what)
        self._tell(what)
