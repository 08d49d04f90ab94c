"""`duehook relay`: publishes wake-ups until it is told to stop."""

import signal
import threading

from app.broker import make_celery
from app.core.clock import LedgerClock
from app.process import begin_with_ledger, end
from app.settings import SettingsError
from outbox_relay.relay import Relay

CLOCK_SECONDS = 10.0


def main() -> None:
    runtime = begin_with_ledger("relay", pool_size=2)
    try:
        celery = make_celery(runtime.settings)
    except SettingsError as error:
        end("relay", error)
    clock = LedgerClock(runtime.engine)
    relay = Relay(runtime.settings, runtime.engine, celery, clock)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: relay.stop())
    stopped = threading.Event()
    threading.Thread(target=clock.keep, args=(CLOCK_SECONDS, stopped), daemon=True).start()
    runtime.settings.tell_ready()
    relay.run()
    stopped.set()
    runtime.close()


main()
