"""Words that must not come up where people look, planted wherever there is a secret or a payload; and who looks."""

import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psycopg
import redis
from psycopg import sql

MARK = "xkCANARY"  # letters alone: every language and alphabet lets it through as it is
_MARKED = re.compile(rb"(?i)xkcanary\w*")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}")


def canary(name: str) -> str:
    """A word that says where it was planted."""
    return f"{MARK}{name}"


def hmac_secret() -> str:
    """A signing secret that is legal and still a canary, as it is written and as the bytes that it means."""
    return f"whsec_{base64.b64encode(canary('HmacBytes').ljust(30, 'x').encode()).decode()}"


def ed25519_secret() -> str:
    """The same for Ed25519."""
    return f"whsk_{base64.b64encode(canary('EdBytes').ljust(32, 'y').encode()).decode()}"


def found(raw: bytes, exact: tuple[str, ...]) -> set[str]:
    """The canaries in some bytes, in base64 inside them too, and those of `exact` that are there."""
    texts = [raw, *filter(None, map(_decoded, _BASE64.findall(raw)))]
    marked = {match.decode() for text in texts for match in _MARKED.findall(text)}
    return marked | {each for each in exact if each.encode() in raw}


def _decoded(word: bytes) -> bytes | None:
    try:
        return base64.b64decode(word + b"=" * (-len(word) % 4))
    except ValueError:
        return None


class Loud:
    """A receiver that answers with canaries in everything that it may choose: `/STATUS/…` is answered by STATUS.

    What it was sent is kept as one text. `/hang` gets no answer, `/garbage` none that is HTTP, `/close` is cut off.
    """

    def __init__(self) -> None:
        self.heard = b""
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._answers())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str, scheme: str = "http") -> str:
        """A URL whose path and query are credentials."""
        return f"{scheme}://127.0.0.1:{self.port}/{path}/{canary('Path')}?token={canary('Query')}"

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def _answers(self) -> type[BaseHTTPRequestHandler]:
        loud = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                loud.heard += self.path.encode() + bytes(self.headers) + body
                what = self.path.split("/")[1]
                if what.isdigit():
                    self._answer(int(what), canary("Answer").encode())
                else:
                    self.close_connection = True
                    loud._released.wait(5 if what == "hang" else 0)
                    self.wfile.write(canary("Garbage").encode() if what == "garbage" else b"")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status, canary("Phrase"))
                self.send_header("location", f"https://else.example/{canary('Location')}")
                self.send_header("set-cookie", f"session={canary('Cookie')}")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: pytest shows what matters."""

        return Handler


class Tap:
    """Every command that Redis is given, values and all, over its restarts; it says so to nobody."""

    def __init__(self, url: str) -> None:
        self.heard = b""
        self._url = url
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with closing(redis.Redis.from_url(self._url, socket_timeout=1)) as client, client.monitor() as monitor:  # type: ignore[no-untyped-call]
                    self._listen(monitor)
            except redis.ConnectionError:
                time.sleep(0.05)

    def _listen(self, monitor: Any) -> None:
        while not self._stopped.is_set():
            try:
                self.heard += json.dumps(monitor.next_command()["command"]).encode() + b"\n"
            except redis.TimeoutError:
                continue


@contextmanager
def tapped(url: str) -> Iterator[Tap]:
    tap = Tap(url)
    try:
        yield tap
    finally:
        tap.stop()


def flower_pages(url: str, login: tuple[str, str]) -> dict[str, bytes]:
    """Everything that Flower shows, the pages of each worker and of tasks that failed too; not while one is missing."""
    with httpx.Client(base_url=url, auth=login, timeout=20) as client:
        workers = client.get("/api/workers?refresh=1")
        tasks = client.get("/api/tasks?limit=2000")
        paths = ["/", "/workers", "/tasks", "/broker", "/metrics", "/api/queues/length", "/api/task/types"]
        paths += [f"/worker/{name}" for name in workers.json()]
        paths += [f"/task/{uuid}" for uuid, task in tasks.json().items() if task["state"] == "FAILURE"][:5]
        pages = {path: client.get(path, follow_redirects=True) for path in paths}
    if not all(page.status_code == httpx.codes.OK for page in pages.values()):
        return {}
    return {"/api/workers": workers.content, "/api/tasks": tasks.content} | {
        path: page.content for path, page in pages.items()
    }


def arguments_of(pids: dict[str, list[int]]) -> bytes:
    """What `ps` shows of these processes to everybody."""
    return b"\n".join(Path(f"/proc/{pid}/cmdline").read_bytes() for each in pids.values() for pid in each)


def sessions(connection: psycopg.Connection[Any]) -> bytes:
    """What PostgreSQL shows of the service's own sessions: their names and the statements they run."""
    query = "SELECT application_name || ': ' || query FROM pg_stat_activity WHERE application_name LIKE 'duehook %'"
    return "\n".join(row[0] for row in connection.execute(query)).encode()


def poison(connection: psycopg.Connection[Any]) -> bytes:
    """What is kept of broker messages that nobody can act on, readable."""
    query = "SELECT concat_ws(' ', reason, task, error, encode(body, 'escape')) FROM duehook.poison_messages"
    return "\n".join(row[0] for row in connection.execute(query)).encode()


def dump(connection: psycopg.Connection[Any]) -> bytes:
    """Every row of the ledger."""
    tables = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'duehook'::regnamespace AND relkind IN ('r', 'p')"
    ).fetchall()
    rows = (
        row[0]
        for (table,) in tables
        for row in connection.execute(sql.SQL("SELECT t::text FROM duehook.{} t").format(sql.Identifier(table)))
    )
    return "\n".join(rows).encode()
