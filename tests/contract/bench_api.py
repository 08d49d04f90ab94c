"""How many events a second the API takes, over real sockets: `python -m tests.contract.bench_api`.

Durable commits, the server in a process of its own, clients that cost next to nothing (prepared bytes).
"""

import argparse
import json
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from app.api.server import serve
from app.core import keys
from app.domain.states import KeyScope
from app.ledger import endpoints
from app.ledger.migrate import migrate
from app.local.services import LocalServices
from app.runtime import open_runtime
from app.settings import Settings, load

BLANK = "x" * 900  # an event of about a kilobyte
READY_SECONDS = 20


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=5)
    options.add_argument("--connections", type=int, default=8)
    options.add_argument("--endpoints", type=int, default=1)
    options.add_argument("--profile", action="store_true", help="have the server print where its time went")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as home, LocalServices(Path(home)) as services:
        assert services.postgres is not None
        url = services.postgres.url
        migrate(url)
        settings = load(database_url=url, secrets_key="a key for benchmarks of thirty-two characters")
        key = _prepare(settings, given.endpoints)
        port = _free_port()
        server = multiprocessing.get_context("spawn").Process(target=_serve, args=(url, port, given.profile))
        server.start()
        try:
            _wait(port)
            one = _post(key, json.dumps({"type": "order.placed", "data": {"blank": BLANK}}))
            many = _post(key, json.dumps([{"type": "order.placed", "data": {"blank": BLANK}}] * 1000))
            _report("singles", server.pid, 1, lambda: _rate(port, one, given.seconds, given.connections), given.seconds)
            _report("batches", server.pid, 1000, lambda: _rate(port, many, given.seconds, 2), given.seconds)
        finally:
            server.terminate()
            server.join()


def _report(name: str, server: int | None, each: int, measure: Callable[[], float], seconds: float) -> None:
    before = _cpu(server)
    rate = each * measure()
    cost = (_cpu(server) - before) / (rate * seconds) * 1000
    print(f"{name}: {rate:,.0f} events/s, {cost:.2f} CPU s of the API per 1,000 (load {os.getloadavg()[0]:.1f})")


def _cpu(process: int | None) -> float:
    """CPU seconds that a process has used: what to trust on a noisy machine."""
    user, system = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _prepare(settings: Settings, count: int) -> str:
    runtime = open_runtime(settings, application_name="bench")
    with runtime.engine.begin() as connection:
        for number in range(count):
            endpoints.insert(connection, "acme", url=f"http://h{number}.example/", event_types=["*"])
        key = keys.create(connection, "acme", KeyScope.PRODUCER)[1]
    runtime.close()
    return key


def _serve(url: str, port: int, profile: bool) -> None:
    runtime = open_runtime(
        load(database_url=url, secrets_key="a key for benchmarks of thirty-two characters"),
        application_name="bench-api",
        pool_size=10,
    )
    stop = _profiler() if profile else lambda: None
    serve(runtime, "127.0.0.1", port)
    stop()


def _post(key: str, body: str) -> bytes:
    return (
        f"POST /v1/events HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def _rate(port: int, request: bytes, seconds: float, connections: int) -> float:
    """Answers 202 a second, over so many connections at once."""
    counts = [0] * connections
    until = time.monotonic() + seconds

    def work(index: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as stream:
            while time.monotonic() < until:
                stream.sendall(request)
                assert _answer(stream).startswith(b"HTTP/1.1 202"), "not accepted"
                counts[index] += 1

    _together(work, connections)
    return sum(counts) / seconds


def _together(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _answer(stream: socket.socket) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        got += stream.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    left = length - len(body)
    while left > 0:
        left -= len(stream.recv(min(left, 1 << 20)))
    return head


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int) -> None:
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the server did not start")


def _profiler() -> Callable[[], None]:
    """Samples all threads; the frames seen most are printed at the end."""
    import sys
    from collections import Counter

    seen: Counter[str] = Counter()
    running = threading.Event()

    def sample() -> None:
        me = threading.get_ident()
        while not running.wait(0.005):
            for thread, frame in sys._current_frames().items():
                walk = frame if thread != me else None
                names = set()
                while walk is not None:
                    code = walk.f_code
                    names.add(f"{os.path.basename(code.co_filename)}:{code.co_name}")
                    walk = walk.f_back
                seen.update(names)

    threading.Thread(target=sample, daemon=True).start()

    def stop() -> None:
        running.set()
        for name, count in seen.most_common(45):
            print(f"{count:6} {name}")

    return stop


if __name__ == "__main__":
    main()
