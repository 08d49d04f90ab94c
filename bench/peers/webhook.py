"""What the peers that are written in Python share: jobs of 1 KB, signed requests, and a producer that waits for orders.

A job holds everything but the endpoint's URL and secret, which each process has in memory: no peer asks a database for
them, as an application would have to.
"""

import base64
import hmac
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

BODY_BYTES = 1024
TIMEOUT = 15.0  # seconds, of a request
DATABASE_URL, REDIS_URL, ENDPOINTS = "BENCH_DATABASE_URL", "BENCH_REDIS_URL", "BENCH_ENDPOINTS"


class Job(TypedDict):
    """One delivery: the id that receivers know it by, the number of its endpoint, and the body."""

    id: str
    endpoint: int
    body: str


class Endpoint(TypedDict):
    """`secret` is that of Standard Webhooks, `whsec_` and base64."""

    url: str
    secret: str


def database_url() -> str:
    """Of the peer's own database."""
    return os.environ[DATABASE_URL]


def redis_url() -> str:
    """Of the Redis that the peer has for itself."""
    return os.environ[REDIS_URL]


class Receivers:
    """The endpoints, with their keys decoded once."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._urls = [each["url"] for each in endpoints]
        self._keys = [base64.b64decode(each["secret"].removeprefix("whsec_")) for each in endpoints]

    def __len__(self) -> int:
        return len(self._urls)

    def request(self, job: Job) -> tuple[str, bytes, dict[str, str]]:
        """URL, body, and the headers of Standard Webhooks 1.0.0, signed now."""
        body, seconds = job["body"].encode(), str(int(time.time()))
        signed = f"{job['id']}.{seconds}.".encode() + body
        signature = base64.b64encode(hmac.digest(self._keys[job["endpoint"]], signed, "sha256")).decode()
        headers = {
            "content-type": "application/json",
            "webhook-id": job["id"],
            "webhook-timestamp": seconds,
            "webhook-signature": f"v1,{signature}",
        }
        return self._urls[job["endpoint"]], body, headers


def receivers() -> Receivers:
    """Those of the file that the environment names."""
    return Receivers(json.loads(Path(os.environ[ENDPOINTS]).read_text()))


def jobs(prefix: str, number: int, endpoints: int) -> list[Job]:
    """So many, to the endpoints in turn, each with a body of exactly 1 KB."""
    return [_job(f"{prefix}{place}", place % endpoints) for place in range(number)]


def _job(id: str, endpoint: int) -> Job:
    head = f'{{"id":"{id}","type":"order.placed.{endpoint}","data":{{"order":1,"note":"'
    return {"id": id, "endpoint": endpoint, "body": f'{head}{"x" * (BODY_BYTES - len(head) - 3)}"}}}}'}


def produce(enqueue: Callable[[list[Job]], None], endpoints: int) -> None:
    """For each line `PREFIX NUMBER` on standard input hand in so many jobs, and say when they are safe."""
    print("ready", flush=True)
    for line in sys.stdin:
        prefix, number = line.split()
        enqueue(jobs(prefix, int(number), endpoints))
        print("done", flush=True)
