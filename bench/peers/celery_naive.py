"""Webhooks by Celery and `requests.post`, as most teams write them first.

- `acks_late` and `reject_on_worker_lost`: a worker that dies loses nothing (Celery's FAQ, "Should I use retry or
  acks_late?"; for an idempotent task, which a webhook with an id is).
- `autoretry_for`, `retry_backoff` and their jitter: the user guide's "Automatic retry for known exceptions".
- `task_ignore_result`: the user guide's "Ignore results you don't want".
- One worker with its defaults: a prefork pool with a process per core.

`python -m bench.peers.celery_naive` hands in, `celery --app bench.peers.celery_naive worker` sends.
"""

import requests
from celery import Celery

from bench.peers.webhook import TIMEOUT, Job, produce, receivers, redis_url

app = Celery("naive", broker=redis_url())
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
endpoints = receivers()


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
    requests.post(url, data=body, headers=headers, timeout=TIMEOUT).raise_for_status()


def enqueue(jobs: list[Job]) -> None:
    """One message after the other."""
    for job in jobs:
        deliver.delay(job)


if __name__ == "__main__":
    produce(enqueue, len(endpoints))
