"""Threads that a process can't do without."""

import logging
import os
import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger("duehook")
SOFTWARE_ERROR = 70  # EX_SOFTWARE


def start_vital(name: str, run: Callable[[], None]) -> threading.Thread:
    """Run `run` in a thread; an exception there ends the process at once.

    A process whose recorder or timer has died would look alive and do nothing for ever. Ended, it is restarted, and
    what it held comes up again: that is what leases are for.
    """

    def guarded() -> None:
        try:
            run()
        except BaseException:  # whatever it is, the process is no longer whole
            log.critical("vital_thread_died", thread=name, exc_info=True)
            logging.shutdown()
            os._exit(SOFTWARE_ERROR)

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    return thread
