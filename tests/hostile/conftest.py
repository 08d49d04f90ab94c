"""What all hostile tests use: both event loops, one certificate authority."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeAlias

import pytest
import uvloop

from tests.hostile.certificates import Authority

Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on a fresh loop: the engine's is uvloop's, everything else has asyncio's own."""
    new_loop = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def run_on_loop(coroutine: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(coroutine)

    return run_on_loop


@pytest.fixture(scope="session", autouse=True)
def system_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    """What the system trusts in these tests, as OpenSSL lets anybody say: no other certificates than the tests' own."""
    folder = tmp_path_factory.mktemp("system")
    authority = Authority(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", authority.bundle)
        patch.setenv("SSL_CERT_DIR", str(folder / "none"))
        yield authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """What the senders of these tests trust beside the system's."""
    return Authority(tmp_path_factory.mktemp("certificates"))
