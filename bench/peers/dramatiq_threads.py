"""Webhooks by dramatiq and its Redis broker.

- A process per core and 8 threads in each: its command line's defaults. 4 and 16 were no faster here; greenlets (100 or
  250, `dramatiq-gevent`) were a fifth faster and cost as much.
- Messages are acknowledged once their actor is done, and retried with exponential backoff, both by default (the user
  guide's "Message Retries").
- Connections are kept, by a `requests.Session` for each thread.

`python -m bench.peers.dramatiq_threads` hands in, `dramatiq bench.peers.dramatiq_threads` sends.
"""

import threading

import dramatiq
import requests
from dramatiq.brokers.redis import RedisBroker
from requests.adapters import HTTPAdapter

from bench.peers.webhook import TIMEOUT, Job, produce, receivers, redis_url

dramatiq.set_broker(RedisBroker(url=redis_url()))
endpoints = receivers()
local = threading.local()


def session() -> requests.Session:
    """This thread's."""
    if not hasattr(local, "session"):
        local.session = requests.Session()
        local.session.mount("http://", HTTPAdapter(pool_connections=len(endpoints)))
    found: requests.Session = local.session
    return found


@dramatiq.actor(max_retries=12, min_backoff=5_000, max_backoff=3_600_000)
def deliver(job: Job) -> None:
    """Post it once; whatever is no 2xx is tried again."""
    url, body, headers = endpoints.request(job)
    session().post(url, data=body, headers=headers, timeout=TIMEOUT).raise_for_status()


def enqueue(jobs: list[Job]) -> None:
    """One message after the other: a group does the same."""
    for job in jobs:
        deliver.send(job)


if __name__ == "__main__":
    produce(enqueue, len(endpoints))
