"""One deadline round a blocking request: httpx's own timeouts begin anew with every read, so a drip never ends them."""

import ssl
import time
from collections.abc import Iterable
from threading import local
from typing import Any

import httpcore
import httpx


class _Limit(local):
    """Until when this thread's request may take; a request is read to its end by the thread that sent it."""

    until = float("inf")

    def left(self, timeout: float | None, error: type[Exception]) -> float:
        left = self.until - time.monotonic()
        if left <= 0:
            raise error("the deadline has passed")
        return left if timeout is None else min(left, timeout)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, limit: _Limit) -> None:
        self._stream, self._limit = stream, limit

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._limit.left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._limit.left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._limit.left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._limit)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Network(httpcore.NetworkBackend):
    def __init__(self, limit: _Limit) -> None:
        self._network, self._limit = httpcore.SyncBackend(), limit

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        left = self._limit.left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._network.connect_tcp(host, port, left, local_address, socket_options), self._limit)


class DeadlineTransport(httpx.HTTPTransport):
    """httpx's own, where the read timeout is the deadline of the whole request, its answer's body included."""

    def __init__(self, verify: ssl.SSLContext) -> None:
        super().__init__(verify=verify)
        self._limit = _Limit()
        self._pool = httpcore.ConnectionPool(
            ssl_context=verify,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,  # below the 30 s after which the API closes an idle connection
            network_backend=_Network(self._limit),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answers with a response that has to be read by the thread that asked."""
        self._limit.until = time.monotonic() + request.extensions["timeout"]["read"]
        return super().handle_request(request)
