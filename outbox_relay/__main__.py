"""`duehook relay`: publishes wake-ups until it is told to stop."""

import signal
import sys
import threading

from app import settings as settings_of
from app.broker import make_celery
from app.core.clock import LedgerClock
from app.logs import configure
from app.runtime import open_runtime
from app.settings import SettingsError
from outbox_relay.relay import Relay

CLOCK_SECONDS = 10.0


def main() -> int:
    try:
        settings = settings_of.load()
        configure(settings)
        runtime = open_runtime(settings, application_name="duehook relay", pool_size=2)
    except SettingsError as error:
        print(f"duehook relay: {error}", file=sys.stderr)
        return 1
    stopped = threading.Event()
    clock = LedgerClock(runtime.engine)
    relay = Relay(settings, runtime.engine, make_celery(settings), clock)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: relay.stop())
    threading.Thread(target=clock.keep, args=(CLOCK_SECONDS, stopped), daemon=True).start()
    settings.tell_ready()
    relay.run()
    stopped.set()
    runtime.close()
    return 0


sys.exit(main())
