"""A receiver on a real socket that verifies, remembers and answers as the test says."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sqlalchemy import Engine
from standardwebhooks import Webhook

from app.domain.signing_keys import hmac_secret
from app.ledger import endpoints
from app.ledger.sealing import Sealer
from tests.ledgers import TENANT
from tests.processes import KEY


@dataclass(frozen=True, slots=True)
class Received:
    """One request, its signature verified by the published library."""

    event_id: str
    attempt: int
    delivery_id: str
    body: bytes
    headers: dict[str, str]
    connection: tuple[int, int]  # the sender's port and ours


@dataclass(slots=True)
class Answer:
    """What to answer; `hold` waits for the test before it does."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 500  # the default drops the sixth of those that connect at once, for a second


class Receiver:
    """`answer` decides for each request; everything that came, and that `verify` did not refuse, is in `received`."""

    def __init__(self, secret: str = hmac_secret(b"a secret of the tests' receivers")) -> None:
        self.secret = secret
        self.received: list[Received] = []
        self.answer: Callable[[Received], Answer] = lambda _: Answer()
        self.verify: Callable[[bytes, dict[str, str]], object] = Webhook(secret).verify
        self._server = _Server(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    @property
    def events(self) -> Counter[str]:
        """How often each event came."""
        return Counter(each.event_id for each in self.received)

    def register(self, engine: Engine, **fields: object) -> int:
        """The seq of an endpoint that points here."""
        sealer = Sealer([KEY])
        wanted = {"event_types": ["*"], **fields, "url": self.url}
        with engine.begin() as connection:
            made = endpoints.insert(connection, TENANT, **wanted)  # type: ignore[arg-type]
            endpoints.add_secret(connection, made.seq, sealer.seal(self.secret))
        return made.seq

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.verify(body, dict(self.headers))
                received = Received(
                    self.headers["webhook-id"],
                    int(self.headers["duehook-attempt"]),
                    self.headers["duehook-delivery-id"],
                    body,
                    {name.lower(): value for name, value in self.headers.items()},
                    (self.client_address[1], self.connection.getsockname()[1]),
                )
                receiver.received.append(received)
                self._answer(receiver.answer(received))

            def _answer(self, answer: Answer) -> None:
                if answer.hold is not None:
                    answer.hold.wait(30)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing: pytest shows what matters."""

        return Handler
