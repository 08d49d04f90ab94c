"""Webhooks by Celery, as its documentation and common practice make it faster.

Beside what celery_naive.py does:
- Connections are kept, by a `requests.Session` in each process, with room for every host in its pool.
- Two workers for two cores, for a worker's main process does all talk with the broker; two processes in the pool of
  each. Threads were slower here (4 or 8 in each worker), and so was one worker with four processes. The pool of gevent,
  which the user guide's "Concurrency" has for tasks that wait, never gives back what a dead worker had.
- `worker_prefetch_multiplier` of 64: "Optimizing" of the user guide says so for many short tasks. Neither gossip nor
  mingle, by which workers only talk to each other.
- Handing in goes through one producer and its pipelined batches (kombu 5.7).
"""

from functools import cache

import requests
from celery import Celery
from requests.adapters import HTTPAdapter

from bench.peers.webhook import TIMEOUT, Job, produce, receivers, redis_url

app = Celery("tuned", broker=redis_url())
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, worker_prefetch_multiplier=64)
endpoints = receivers()


@cache
def session() -> requests.Session:
    """This process's, first asked for after the fork."""
    made = requests.Session()
    made.mount("http://", HTTPAdapter(pool_connections=len(endpoints)))
    return made


@app.task(
    name="deliver",
    acks_late=True,
    reject_on_worker_lost=True,
    autoretry_for=(requests.RequestException,),
    retry_backoff=5,
    max_retries=12,
)
def deliver(job: Job) -> None:
    """Post it once; whatever is no 2xx is tried again."""
    url, body, headers = endpoints.request(job)
    session().post(url, data=body, headers=headers, timeout=TIMEOUT).raise_for_status()


def enqueue(jobs: list[Job]) -> None:
    """Many messages on their way at once."""
    with app.producer_pool.acquire(block=True) as producer, producer.batch(max_size=500):
        for job in jobs:
            deliver.apply_async((job,), producer=producer)


if __name__ == "__main__":
    produce(enqueue, len(endpoints))
