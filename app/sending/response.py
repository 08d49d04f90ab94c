"""Reads one HTTP/1.1 response after another, just far enough to know what it decides."""

import re
from dataclasses import dataclass

import httptools

RESPONSE_LIMIT = 64 * 1024  # raw bytes of one response that are read, head and body together
HEADER_LIMIT = 256
# Below the 5 s after which Node.js and uvicorn close an unused connection. A request that meets such a close
# is "unknown" and sent twice; keeping connections longer would save few and cheap ones.
IDLE_SECONDS = 4.0

_KEEP_ALIVE_TIMEOUT = re.compile(r"timeout\s*=\s*([0-9]{1,6})", re.IGNORECASE)
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Reply:
    """A final response as it was sent: nothing decoded, at most the wanted bytes of the body."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    address: str

    def header(self, name: bytes) -> list[str]:
        """A header's values as text; what a database or a log can't hold (NUL, line ends) becomes a blank."""
        return header_values(self.headers, name)


def header_values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """The values that stand under a lower-case name, in order, Latin-1 and without control characters.

    And without the blanks round them, of which the parser leaves those behind.
    """
    found = (value.strip(b" \t") for key, value in headers if len(key) == len(name) and key.lower() == name)
    return [_CONTROLS.sub(" ", value.decode("latin-1")) for value in found]


class ResponseReader:
    """The state of the response that is being read.

    `status` is set once a complete final head has come (1xx are skipped, 101 is final), `complete` once its
    body has ended, `keep_seconds` is how long the connection may then wait for its next request.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        # Folded lines, NUL in a value and bare LF are ugly, and readable all the same: calling such a 200
        # "unknown" would send it again for days. Contradictory lengths stay errors. The version is judged below:
        # the parser knows 0.9 and 2.0, which no HTTP/1.1 message is, and not 1.9, which is one (RFC 9110, 2.5).
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_version=True
        )
        self.start(0)

    def start(self, body_wanted: int) -> None:
        """Forgets the last response; of the next one's body up to `body_wanted` bytes are kept."""
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.complete = False
        self.keep_seconds = 0.0
        self._wanted = body_wanted
        self._received = 0
        self._trouble = ""

    def feed(self, data: bytes) -> str:
        """Takes what arrived; says what is wrong when the connection can't be read on, else nothing."""
        room = RESPONSE_LIMIT - self._received
        self._received += len(data)
        try:
            self._parser.feed_data(data[:room])
        except httptools.HttpParserUpgrade:
            return "the receiver left HTTP"
        except httptools.HttpParserError as error:
            return f"unreadable response: {error}"
        if self._received > RESPONSE_LIMIT:
            return f"response longer than {RESPONSE_LIMIT} bytes"
        return self._trouble

    def on_message_begin(self) -> None:
        """Called by the parser, as are the methods below."""
        if self.complete:
            self._trouble = "bytes after the response"
        elif self.status is None:
            self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is None:  # later ones are trailers, or belong to a stray response
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        if self._trouble:  # what follows an unreadable head is no answer either
            return
        if len(self.headers) > HEADER_LIMIT:
            self._trouble = f"response head with more than {HEADER_LIMIT} lines"
        elif not version.startswith("1."):
            self._trouble = f"response in HTTP/{version}"
        elif self.status is None and (not 100 <= status < 200 or status == 101):
            self.status = status

    def on_body(self, data: bytes) -> None:
        if not self.complete and len(self.body) < self._wanted:
            self.body += data[: self._wanted - len(self.body)]

    def on_message_complete(self) -> None:
        if self.status is not None and not self.complete:
            self.complete = True
            self.keep_seconds = self._keep_seconds()

    def _keep_seconds(self) -> float:
        """A second less than the receiver's own `Keep-Alive: timeout=`, or it closes while we write."""
        if not self._parser.should_keep_alive():
            return 0.0
        hint = _KEEP_ALIVE_TIMEOUT.search(",".join(header_values(self.headers, b"keep-alive")))
        return min(IDLE_SECONDS, int(hint[1]) - 1) if hint else IDLE_SECONDS
