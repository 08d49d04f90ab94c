"""Ports of `duehook up`: as asked, or a free one that the home keeps, and then it is said."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.local.errors import LocalServiceError
from app.local.up.ports import Ports, choose, url_of
from app.settings import Settings


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def chosen(home: Path, **settings: object) -> tuple[Ports, list[str]]:
    said: list[str] = []
    return choose(Settings(home=home, **settings), said.append), said  # type: ignore[arg-type]


def test_zero_is_a_free_one_and_the_same_one_next_time(tmp_path: Path) -> None:
    ports, said = chosen(tmp_path, api_port=0, flower_port=0)
    assert said == [
        f"The API listens on port {ports.api}: DUEHOOK_API_PORT is 0.",
        f"Flower listens on port {ports.flower}: DUEHOOK_FLOWER_PORT is 0.",
    ]
    assert chosen(tmp_path, api_port=0, flower_port=0)[0] == ports


def test_a_default_that_is_taken_becomes_a_free_one(tmp_path: Path) -> None:
    with suppress(OSError), socket.create_server(("127.0.0.1", 8300)):  # taken by somebody else: as good
        ports, said = chosen(tmp_path, flower_port=0)
    assert ports.api != 8300
    assert said[0] == f"The API listens on port {ports.api}: port 8300 is taken."


def test_one_that_was_asked_for_and_is_taken_is_refused(tmp_path: Path, taken: int) -> None:
    with pytest.raises(LocalServiceError, match=f"Port {taken} of 127.0.0.1 is taken: .* set DUEHOOK_API_PORT to"):
        chosen(tmp_path, api_port=taken)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_is_not_this_machine_s_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(LocalServiceError, match=f"Nothing can listen on {host}, port 9 .*: set DUEHOOK_API_HOST"):
        chosen(tmp_path, api_host=host, api_port=9)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_the_url_is_one_that_this_machine_can_use(host: str, url: str) -> None:
    assert url_of(host, 80) == url
