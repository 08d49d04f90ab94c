"""A receiver of the evaluation, run as a program: the demo's, with more that can go wrong, deduplicating or naive.

It is told on standard input, beside what the demo's is told: `{"naive": true}` (an effect for each request, no
receipts), `{"secrets": {path: [secret, …]}}`, `{"slow": seconds}` (the effect at once, the answer so much later),
`{"refuse_receipts": seconds}` (its database refuses receipts), `{"poison": type}` (kill whoever sends such an event).
"""

import asyncio
import json
import sqlite3
import sys
import time
from pathlib import Path

from app.demo.ledger import apply
from app.demo.receiver import Message, Receive, Receiver, serve
from app.eval.peers import kill_peer
from app.receiver import UnverifiedError, verify
from app.receiver.receipts import TABLE

# Both moments of a receipt: before its effect, and when the effect has been applied in the same transaction.
_REFUSE = (
    f"CREATE TRIGGER IF NOT EXISTS refuse_insert BEFORE INSERT ON {TABLE} WHEN abs(random()) % 2 = 0"
    " BEGIN SELECT raise(ABORT, 'no receipt can be made'); END",
    f"CREATE TRIGGER IF NOT EXISTS refuse_update BEFORE UPDATE ON {TABLE}"
    " BEGIN SELECT raise(ABORT, 'no receipt can be kept'); END",
)
_ACCEPT = ("DROP TRIGGER IF EXISTS refuse_insert", "DROP TRIGGER IF EXISTS refuse_update")


class EvalReceiver(Receiver):
    """An ASGI application, like the demo's."""

    def __init__(self, ledger: sqlite3.Connection) -> None:
        super().__init__(ledger)
        self._naive = False
        self._secrets: dict[str, list[str]] = {}
        self._slow = 0.0
        self._refuses_until = 0.0
        self._poison: str | None = None

    def told(self, line: bytes) -> None:
        """Do as a line of the input says."""
        super().told(line)
        told = json.loads(line)
        self._naive = told.get("naive", self._naive)
        self._secrets |= told.get("secrets", {})
        self._slow = told.get("slow", self._slow)
        self._poison = told.get("poison", self._poison)
        if "refuse_receipts" in told:
            self._refuses_until = time.monotonic() + told["refuse_receipts"]
            self._run(_REFUSE)

    def _decide(self, scope: Message, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        self._secret = self._secrets.get(scope["path"], [])
        if self._refuses_until and time.monotonic() > self._refuses_until:
            self._refuses_until = 0.0
            self._run(_ACCEPT)
        if not self._secret:
            return 401, "unverified"
        if self._poison and self._kills(scope, headers, body):
            return 500, "killed"
        return self._decide_naively(headers, body) if self._naive else super()._decide(scope, headers, body)

    def _decide_naively(self, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        """As somebody does who has never heard of duplicates."""
        if time.monotonic() < self._throttled_until:
            return 429, "throttled"
        try:
            event = verify(headers, body, self._secret)
        except UnverifiedError:
            return 401, "unverified"
        apply(self._ledger, event)
        return 200, self._said()

    def _kills(self, scope: Message, headers: dict[str, str], body: bytes) -> bool:
        """Only who sends a verified event: a stranger that connects by chance lives."""
        try:
            if verify(headers, body, self._secret).type != self._poison:
                return False
            kill_peer((scope["client"][1], scope["server"][1]))
        except UnverifiedError:
            return False
        except (ValueError, ProcessLookupError, PermissionError) as error:  # it is gone already, or not ours to kill
            print(error, file=sys.stderr)
        return True

    async def _goes_on(self, answer: str, receive: Receive) -> bool:
        if self._slow and answer in ("applied", "duplicate"):
            await asyncio.sleep(self._slow)
        return await super()._goes_on(answer, receive)

    def _run(self, statements: tuple[str, ...]) -> None:
        for statement in statements:
            self._ledger.execute(statement)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), EvalReceiver))
