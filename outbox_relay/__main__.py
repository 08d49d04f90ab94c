"""`duehook relay`: publishes wake-ups until it is told to stop."""

import signal

from app.broker import make_celery
from app.core.presence import Presence
from app.process import begin_with_ledger, end, set_up
from app.settings import SettingsError
from outbox_relay.relay import Relay


def main() -> None:
    runtime = begin_with_ledger("relay", pool_size=2)
    try:
        celery = make_celery(runtime.settings)
    except SettingsError as error:
        end("relay", error)
    with Presence(runtime.engine, "relay") as presence:
        relay = Relay(runtime.settings, runtime.engine, celery, presence.clock, presence.wait_for)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, lambda *_: relay.stop())
        set_up()
        runtime.settings.tell_ready()
        relay.run()
    runtime.close()


main()
