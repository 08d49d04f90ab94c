"""What lies between the service and a receiver: passes requests on, remembers them, changes them, loses answers."""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from json import loads
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """As its sender sent it, all header names in lower case."""

    headers: dict[str, str]
    body: bytes

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A receiver's."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return loads(self.body)


def send(port: int, request: Request) -> Answer:
    """A request to the receiver on this port, byte for byte. Raises OSError or HTTPException when no answer comes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.putrequest("POST", "/hooks", skip_host="host" in request.headers, skip_accept_encoding=True)
        for name, value in request.headers.items():
            connection.putheader(name, value)
        connection.endheaders(request.body)
        answered = connection.getresponse()
        return Answer(answered.status, answered.read())
    finally:
        connection.close()


class Wire:
    """To the receiver on `port`. `change` makes another request of one that passes; `lose` keeps its answer back."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.passed: list[tuple[Request, Answer | None]] = []
        self.restore()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hooks"

    def restore(self) -> None:
        """Change nothing and lose nothing any more."""
        self.change: Callable[[Request], Request] = lambda request: request
        self.lose: Callable[[Request], bool] = lambda _: False

    def requests(self, event_id: str) -> list[Request]:
        """All that were sent for an event."""
        return [request for request, _ in self.passed if request.event_id == event_id]

    def answers(self, event_id: str) -> list[Answer | None]:
        """What the receiver answered to each; None when it did not."""
        return [answer for request, answer in self.passed if request.event_id == event_id]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _pass(self, request: Request) -> Answer | None:
        """The receiver's answer, None when it is not to reach the sender."""
        try:
            answer = send(self.port, self.change(request))
        except (OSError, http.client.HTTPException):
            answer = None
        self.passed.append((request, answer))
        return None if self.lose(request) else answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = wire._pass(Request({name.lower(): value for name, value in self.headers.items()}, body))
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: object) -> None:
                """Nothing: pytest shows what matters."""

        return Handler
