"""What an egress proxy does, as steps of a script: one that serves well, and the beginnings of those that don't."""

import base64
import select
import socket

from app.domain.proxies import Proxy, parse_proxy
from tests.hostile.server import HostileServer, Peer, Step

PASSWORD = "HIDDEN-password"
CREDENTIALS = base64.b64encode(f"duehook:{PASSWORD}".encode())
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def proxy_at(server: HostileServer, host: str = "127.0.0.1") -> Proxy:
    """The proxy that this server plays, with a login."""
    proxy = parse_proxy(f"http://duehook:{PASSWORD}@{host}:{server.port}")
    assert isinstance(proxy, Proxy), proxy
    return proxy


def read_connect() -> Step:
    """Reads the sender's CONNECT and notes it in `server.requests`."""
    return lambda peer: _read_connect(peer)


def tunnel(answer: bytes = ESTABLISHED) -> Step:
    """Reads a CONNECT, connects to where it says, answers, and carries bytes both ways until either side ends."""

    def step(peer: Peer) -> None:
        host, port = _read_connect(peer).split(b" ")[1].decode().rsplit(":", 1)
        with socket.create_connection((host.strip("[]"), int(port)), 5) as receiver:
            receiver.settimeout(None)
            peer.sock.sendall(answer)
            _carry(peer.sock, receiver)

    return step


def _read_connect(peer: Peer) -> bytes:
    while b"\r\n\r\n" not in peer.unread:
        peer.receive()
    request = bytes(peer.unread)
    peer.server.requests.append(request)
    peer.unread.clear()
    return request


def _carry(one: socket.socket, other: socket.socket) -> None:
    ways = {one: other, other: one}
    while True:
        for end in select.select(list(ways), [], [])[0]:
            if not (data := end.recv(65536)):
                return
            ways[end].sendall(data)
