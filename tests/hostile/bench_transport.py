"""CPU seconds of the sender per 1,000 signed 1 KB POSTs: `python -m tests.hostile.bench_transport [--uvloop] [--tls]`.

Not collected by pytest. The receiver is a minimal one in a process of its own, so that only the sender counts.
"""

import argparse
import asyncio
import base64
import hashlib
import hmac
import multiprocessing
import resource
import socket
import ssl
import tempfile
import time
from pathlib import Path
from typing import cast

import uvloop

from app.domain.addresses import parse_networks
from app.domain.exchange import Answered
from app.domain.urls import EndpointUrl, parse_url
from app.sending.transport import PinnedTransport, request_head
from tests.hostile.certificates import Authority

BODY = b'{"id":"evt_1","type":"bench","data":"' + b"x" * 985 + b'"}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok"


class Sink(asyncio.Protocol):
    """Answers 200 whenever a request's worth of bytes is complete; it trusts the sender's framing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._seen = b""

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if self._seen.endswith(b'"}'):
            self._seen = b""
            self._transport.write(ANSWER)


def serve(listener: socket.socket, context: ssl.SSLContext | None) -> None:
    """Runs the sink until the process is terminated."""

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Sink, sock=listener, ssl=context)
        await server.serve_forever()

    uvloop.run(run())


def signed_head(url: EndpointUrl, number: int) -> bytes:
    """The head the engine would make: ids, time and an HMAC over id, time and body."""
    event, now = f"evt_{number}", str(int(time.time()))
    digest = hmac.digest(b"k" * 32, f"{event}.{now}.".encode() + BODY, hashlib.sha256)
    headers = (
        ("content-type", "application/json"),
        ("user-agent", "duehook/0.1.0"),
        ("accept", "*/*"),
        ("accept-encoding", "identity"),
        ("webhook-id", event),
        ("webhook-timestamp", now),
        ("webhook-signature", "v1," + base64.b64encode(digest).decode()),
        ("duehook-attempt", "1"),
        ("duehook-delivery-id", f"dlv_{number}"),
    )
    return request_head(url, headers, len(BODY))


async def send_all(url: EndpointUrl, ca_bundle: str, requests: int, in_flight: int) -> None:
    """Sends `requests` requests, `in_flight` at a time, after one that warms up each connection."""
    transport = PinnedTransport(parse_networks(["127.0.0.0/8"]), ca_bundle=ca_bundle)
    now = asyncio.get_running_loop().time

    async def lane(count: int) -> None:
        for number in range(count):
            result = await transport.send(url.origin, signed_head(url, number), BODY, now() + 15)
            assert isinstance(result, Answered) and result.status == 200, result

    await asyncio.gather(*(lane(1) for _ in range(in_flight)))
    cpu, wall = cpu_seconds(), time.perf_counter()
    await asyncio.gather(*(lane(requests // in_flight) for _ in range(in_flight)))
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    transport.close()
    print(f"{in_flight:3} in flight: {cpu * 1000 / requests:.4f} CPU s per 1,000, {requests / wall:,.0f} per second")


def cpu_seconds() -> float:
    """User and system time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uvloop", action="store_true")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--requests", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        authority = Authority(Path(folder))
        context = authority.server_context("127.0.0.1") if options.tls else None
        # Forked: a TLS context can't be sent to a process.
        sink = multiprocessing.get_context("fork").Process(target=serve, args=(listener, context), daemon=True)
        sink.start()
        url = parse_url(f"http{'s' * options.tls}://127.0.0.1:{listener.getsockname()[1]}/hook")
        assert isinstance(url, EndpointUrl)
        run = uvloop.run if options.uvloop else asyncio.run
        for in_flight in (1, 50):
            run(send_all(url, authority.bundle, options.requests, in_flight))
        sink.terminate()


if __name__ == "__main__":
    main()
