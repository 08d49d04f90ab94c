"""The commands of docker-compose.yml as a container would start them: without rights, with /tmp alone to write to."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml  # type: ignore[import-untyped]

from app.local.access import free_port
from app.local.up.readiness import answers
from tests.logins import as_program
from tests.processes import KEY, QUICK
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: each for name, each in SERVICES.items() if each.get("image") == "duehook"}
USER = 10001
LOGINS = {"api": "api", "relay": "relay", "scan": "worker", **{name: "worker" for name in OURS if "worker" in name}}
# As the image: the code where nothing can be written, /tmp as compose mounts it. The checkout may lie in /tmp itself.
CONTAINER = f"""
set -e
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir /mnt/code /mnt/packages /mnt/python
mount --bind "$CODE" /mnt/code
mount --bind "$PACKAGES" /mnt/packages
mount --bind "$PYTHON" /mnt/python
mount -t tmpfs -o noexec,nosuid,nodev,size=64m,mode=1777 none /tmp
for place in $(awk '{{print $5}}' /proc/self/mountinfo | sort -ru); do
  case "$place" in /tmp|/proc*|/dev*|/sys*) ;; *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;; esac
done
! touch /here /mnt/code/here /var/here 2>/dev/null
cd /
exec setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \\
  "/mnt/python/bin/$NAME" -P -m app.cli.main "$@"
"""


def _can_isolate() -> str | None:
    """Why not, where it can't."""
    if os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("unshare"):
        return "needs root, setpriv and unshare"
    tried = subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, check=False)
    return None if tried.returncode == 0 else "this machine lets nobody mount"


@pytest.fixture
def environment(database_url: str, broker_url: str) -> dict[str, str]:
    return {
        **{name: each for name, each in os.environ.items() if not name.startswith("DUEHOOK_")},
        **QUICK,
        "CODE": str(ROOT),
        "PACKAGES": sysconfig.get_path("purelib"),
        "PYTHON": sys.base_prefix,  # which may lie where the user has no business, as all of it may
        "NAME": Path(sys.executable).resolve().name,
        "PYTHONPATH": "/mnt/code:/mnt/packages",
        "LD_LIBRARY_PATH": "/mnt/python/lib",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/srv",
        "TMPDIR": "/tmp",
        "DUEHOOK_BROKER_URL": broker_url,
        "DUEHOOK_SECRETS_KEY": KEY,
        "DUEHOOK_FLOWER_LOGIN": "duehook:a-password",
        "DUEHOOK_READY_FILE": "/tmp/ready",
        "DUEHOOK_API_PORT": str(free_port()),
        "DUEHOOK_FLOWER_PORT": str(free_port()),
    }


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Nothing of it is left at the end."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for each in processes:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait(10)


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.skipif(_can_isolate() is not None, reason=str(_can_isolate()))
@pytest.mark.parametrize("name", [name for name in OURS if name != "migrate"])
def test_a_container_works_without_rights_and_writes_nowhere_but_to_tmp(
    name: str,
    environment: dict[str, str],
    database_url: str,
    started: list[subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    if name in LOGINS:
        environment |= {"DUEHOOK_DATABASE_URL": as_program(database_url, LOGINS[name])}
    else:
        del environment["DUEHOOK_SECRETS_KEY"]
    log = tmp_path / "log"
    command = ["unshare", "-m", "bash", "-c", CONTAINER, "container", *SERVICES[name]["command"]]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    started.append(process)

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()
        ready_file = Path(f"/proc/{process.pid}/root/tmp/ready")  # of its own /tmp
        return _is_ready(name, environment) if name in ("api", "flower", "beat") else ready_file.exists()

    wait_until(is_ready, deadline=90, what=f"{name} works")
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    assert status["Uid"].split() == [str(USER)] * 4
    assert status["NoNewPrivs"] == "1"
    assert {int(status[which], 16) for which in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    process.terminate()
    assert process.wait(60) == 0, log.read_text()
    said = log.read_text()
    for trouble in ("Read-only file system", "Permission denied", "Traceback", "Errno"):
        assert trouble not in said, said


def _is_ready(name: str, environment: dict[str, str]) -> bool:
    """By what the others see of it."""
    match name:
        case "api":
            return answers(f"http://127.0.0.1:{environment['DUEHOOK_API_PORT']}/readyz")
        case "flower":
            return answers(f"http://127.0.0.1:{environment['DUEHOOK_FLOWER_PORT']}/healthcheck")
        case _:
            with redis.Redis.from_url(environment["DUEHOOK_BROKER_URL"]) as client:
                return bool(client.llen("duehook:upkeep"))


def test_every_container_of_ours_is_locked_down_alike() -> None:
    assert len(OURS) == 9
    for name, service in OURS.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["tmpfs"] == ["/tmp:noexec,nosuid,nodev,size=64m"], name
        assert service["pids_limit"] > 0, name
        assert "volumes" not in service and "privileged" not in service and "user" not in service, name


def test_each_container_gets_the_passwords_that_are_its_own() -> None:
    """`.env` would give all of them to each: what is somebody else's is set to nothing."""
    passwords = {f"POSTGRES_{each}PASSWORD" for each in ("", "API_", "RELAY_", "WORKER_")}
    for name, service in OURS.items():
        environment = service["environment"]
        url = environment.get("DUEHOOK_DATABASE_URL", "")
        held = {each for each in passwords if f"${{{each}" in url or environment[each]}
        if name == "migrate":
            assert held == passwords - {"POSTGRES_PASSWORD"} | {"POSTGRES_PASSWORD"}
        elif name in LOGINS:
            program = LOGINS[name]
            assert held == {f"POSTGRES_{program.upper()}_PASSWORD"}, name
            assert f"//duehook_{program}_login:" in url
        else:
            assert (held, url, environment["DUEHOOK_SECRETS_KEY"]) == (set(), "", ""), name
        assert environment["REDIS_PASSWORD"] == environment["FLOWER_PASSWORD"] == ""


def test_the_image_has_a_user_of_its_own_and_nothing_that_is_not_code() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY")]
    assert {each for those in copied for each in those} == {
        *("pyproject.toml", "constraints.txt", "README.md"),
        *("app", "workers", "outbox_relay", "bench"),
    }
    assert lines.index(f"USER {USER}") > max(number for number, line in enumerate(lines) if line.startswith("RUN"))
    assert not [line for line in lines if line.startswith(("ARG", "ENV", "ADD"))], "no place for a secret"
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ".*" in ignored, "with .env, .git and .duehook"
