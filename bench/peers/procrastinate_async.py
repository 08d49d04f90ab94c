"""Webhooks by procrastinate, in PostgreSQL, with asynchronous tasks.

- Asynchronous tasks, many at once in each worker, and a worker per core: the guide's "Execute multiple jobs at the same
  time". It shows 30; of 10, 30 and 100, 100 cost the least here, with 8 connections to the database rather than more.
- `batch_defer`, one statement for all: the guide's "Batch defer multiple jobs".
- `delete_jobs="successful"`: the guide's "Delete jobs on completion".
- A periodic task that starts again what a dead worker left: the guide's "Retry stalled jobs", as it stands there.
- Connections are kept by one aiohttp session for each process; uvloop runs it.

`python -m bench.peers.procrastinate_async prepare | work | produce`.
"""

import sys
from typing import Any

import aiohttp
import uvloop
from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy

from bench.peers.webhook import TIMEOUT, Job, database_url, produce, receivers

CONCURRENCY = 100
app = App(connector=PsycopgConnector(conninfo=database_url(), min_size=4, max_size=8))
endpoints = receivers()
retry = RetryStrategy(
    max_attempts=12, exponential_wait=5, retry_exceptions={aiohttp.ClientError, TimeoutError, ConnectionError}
)


@app.task(name="deliver", queue="webhooks", retry=retry, pass_context=True)
async def deliver(context: JobContext, job: Job) -> None:
    """Post it once; whatever is no 2xx is tried again."""
    url, body, headers = endpoints.request(job)
    session: aiohttp.ClientSession = context.additional_context["session"]
    async with session.post(url, data=body, headers=headers) as answer:
        answer.raise_for_status()


@app.periodic(cron="*/10 * * * *")
@app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
async def retry_stalled_jobs(context: JobContext, timestamp: int) -> None:
    """What a worker had that is gone."""
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)


async def work() -> None:
    """Until a signal ends it."""
    timeout, connector = aiohttp.ClientTimeout(total=TIMEOUT), aiohttp.TCPConnector(limit=CONCURRENCY)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, app.open_async():
        await app.run_worker_async(
            concurrency=CONCURRENCY, delete_jobs="successful", additional_context={"session": session}
        )


async def prepare() -> None:
    """Its tables."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


def enqueue(jobs: list[Job]) -> None:
    """All in one statement."""
    arguments: list[dict[str, Any]] = [{"job": job} for job in jobs]
    deliver.batch_defer(*arguments)


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        with app.open():
            produce(enqueue, len(endpoints))
    else:
        uvloop.run({"prepare": prepare, "work": work}[sys.argv[1]]())
