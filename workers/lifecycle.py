"""When a Celery process begins and ends, so do its connections, its threads and its engine."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from celery import Celery
from celery.bootsteps import RUN, StartStopStep
from celery.signals import beat_init, setup_logging, worker_init, worker_ready
from celery.worker import state

from app.process import set_up
from app.runtime import open_runtime
from app.settings import Settings
from workers.host import Host
from workers.tasks import register
from workers.transport import Channel

log = structlog.get_logger("duehook.worker")
POOL_SIZE = 12  # connections of one worker: its task threads, its timers, its recorder, its presence
COLD = 1  # exit code of a worker that left what was in the air to its leases


def run_worker(celery: Celery, settings: Settings, lanes: Sequence[str], arguments: Sequence[str]) -> None:
    """Work until told to stop; raises `SettingsError` when this process does not fit the ledger.

    SIGTERM, or one SIGINT, stops warm: nothing new is taken, what is held has its outbox row looked at at once, what
    is in the air ends and is recorded; it takes as long as a request may, a repeat changes nothing, exit code 0.
    SIGQUIT, or a second SIGINT, also after SIGTERM, stops cold: the same, but what is in the air is cut and comes up
    again when its lease ends; exit code 1. One more of these ends the process where it is, as SIGKILL does: then the
    publish leases of what was held have to end too.
    """
    role = f"worker {'-'.join(lanes)}"
    attendance = Attendance(settings, lanes)
    runtime = open_runtime(settings, application_name=f"duehook {role}", pool_size=POOL_SIZE)
    host = Host(runtime, role, attendance.hear)
    stops = Stops(host.cut)
    register(celery, host, runtime.engine)
    setup_logging.connect(_keep_our_logging, weak=False)
    worker_init.connect(lambda sender, **_: attendance.begin(sender), weak=False)
    worker_ready.connect(lambda sender, **_: attendance.arrive(sender), weak=False)
    worker_ready.connect(lambda **_: stops.listen(), weak=False)
    worker_ready.connect(lambda **_: set_up(), weak=False)
    celery.steps["worker"].add(at_the_end(host.hurry))
    host.start()
    Channel.now = host.clock.time
    try:
        celery.worker_main(["worker", *arguments])
    finally:
        settings.tell_unready()
        host.stop()
    if stops.cold:
        _exit_at_once()  # a thread that waits for something keeps Python from ending
    sys.exit(attendance.exit_code)


def at_the_end(hurry: Callable[[], None]) -> type[StartStopStep]:
    """A step of Celery's worker that hurries its tasks when a stop begins, before the pool waits for them."""

    class Ending(StartStopStep):  # type: ignore[misc]
        requires = ("celery.worker.components:Pool",)

        def close(self, worker: object) -> None:
            hurry()

    return Ending


class Attendance:
    """Whether a worker is at its queues. It leaves them while its host's clock is off, and keeps nothing of theirs.

    Celery compares a message's ETA, and Redis's redelivery compares when it was taken, with the host's clock.
    """

    def __init__(self, settings: Settings, lanes: Sequence[str]) -> None:
        self._settings = settings
        self._lanes = list(lanes)
        self._unready: str | None = None
        self._worker: Any = None
        self._consumer: Any = None

    @property
    def exit_code(self) -> int:
        return int(self._worker.exitcode or 0) if self._worker else COLD

    def begin(self, worker: Any) -> None:
        self._worker = worker

    def arrive(self, consumer: Any) -> None:
        """The consumer is connected for the first time and has asked for nothing yet; it stays when connections go."""
        self._consumer = consumer
        self._attend()

    def hear(self, unready: str | None) -> None:
        """Any thread may say so, and as often as it likes."""
        self._unready = unready
        if self._consumer is not None:
            self._consumer.call_soon(self._attend)

    def _attend(self) -> None:
        """In the consumer's loop. A connection that breaks here takes its usual course; the next word finds it anew."""
        if self._consumer.blueprint.state != RUN:
            return
        if self._unready:
            self._tell(self._settings.tell_unready)
            self._leave()
        else:
            for lane in self._lanes:
                if not self._consumer.task_consumer.consuming_from(lane):
                    self._consumer.add_task_queue(lane)
            self._tell(self._settings.tell_ready)

    def _tell(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except OSError as error:  # which the loop would take for a lost connection, every few seconds
            log.warning("ready_file_failed", error=type(error).__name__)

    def _leave(self) -> None:
        for lane in self._lanes:
            if self._consumer.task_consumer.consuming_from(lane):
                self._consumer.cancel_task_queue(lane)
        for request in tuple(state.scheduled_requests):
            self._give_back(request)

    def _give_back(self, request: Any) -> None:
        """One that Celery holds until its ETA by a wrong clock: to the head of its queue, for others."""
        self._consumer.timer.cancel(request._eta_timer_entry)
        state.scheduled_requests.discard(request)
        state.requests.pop(request.id, None)
        request.reject(requeue=True)
        self._consumer.qos.decrement_eventually()


class Stops:
    """What SIGINT and SIGQUIT do; SIGTERM stays Celery's own.

    Celery's handler of SIGQUIT cancels running tasks from within, and fails where tasks are threads; it also takes
    locks that it may have interrupted. These do no more than leave word.
    """

    def __init__(self, cut: Callable[[], None]) -> None:
        self.cold = False
        self._cut = cut

    def listen(self) -> None:
        signal.signal(signal.SIGINT, self._interrupted)
        signal.signal(signal.SIGQUIT, self._quit)

    def _interrupted(self, *_: object) -> None:
        if state.should_stop is None:
            state.should_stop = 0
        else:
            self._quit()

    def _quit(self, *_: object) -> None:
        if self.cold:
            os._exit(COLD)
        self.cold = True
        state.should_terminate = COLD
        self._cut()


def _exit_at_once() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(COLD)


def prepare_beat(celery: Celery, settings: Settings) -> None:
    """Beat only publishes; it needs no ledger."""
    setup_logging.connect(_keep_our_logging, weak=False)
    beat_init.connect(lambda **_: settings.tell_ready(), weak=False)


def _keep_our_logging(**_: object) -> None:
    """A receiver of this signal keeps Celery from configuring logging itself."""
