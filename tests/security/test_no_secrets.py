"""The repository holds no secret: no key, no token, no password in a URL, nothing random without a reason."""

import re
import secrets
import shutil
import subprocess
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import transient_settings

ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
DETECTORS = (
    *("ArtifactoryDetector", "AWSKeyDetector", "AzureStorageKeyDetector", "BasicAuthDetector", "GitHubTokenDetector"),
    *("GitLabTokenDetector", "IbmCloudIamDetector", "JwtTokenDetector", "MailchimpDetector", "NpmDetector"),
    *("OpenAIDetector", "PrivateKeyDetector", "PypiTokenDetector", "SendGridDetector", "SlackDetector"),
    *("SquareOAuthDetector", "StripeDetector", "TelegramBotTokenDetector", "TwilioKeyDetector"),
)
PLUGINS: list[dict[str, object]] = [
    *[dict[str, object](name=name) for name in DETECTORS],
    {"name": "Base64HighEntropyString", "limit": 4.5},
    {"name": "HexHighEntropyString", "limit": 3.0},
]
EXAMPLE = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # of the published standard, in all of its libraries
SAYS_SO = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk="  # the standard's too: TESTSIGNINGKEYDONOTUSETHISFORANY
# What the detectors find and may stay. The value itself, so that another one in the same place is found.
EXCEPTIONS = {
    "app/api/endpoint_shapes.py": {EXAMPLE: "the standard's own example"},
    "app/domain/proxies.py": {"password": "shows how a URL is written"},
    "app/local/reach.py": {"password": "shows how a URL is written"},
    "docs/sql-contract.md": {"change-me": "an example that says so"},
    "tests/contract/test_refusals.py": {"pass": "of no service: URLs with a password are refused"},
    "tests/eval/test_command.py": {"secret": "of no service: how a URL is written"},
    "tests/eval/test_obstacles.py": {"secret": "the same"},
    "tests/integration/test_local_services.py": {
        "s3cret": "of no service: it must not be repeated in an error",
        "s3cret%zz": "the same",
        "an": "the same",
    },
    "tests/rabbit.py": {"guest": "RabbitMQ's own default, on a server that a test starts for itself"},
    "tests/security/test_logins.py": {"p%20w%40%2F": "of no service: how it is written in a URL"},
    "tests/unit/test_redaction.py": {
        "hu": "of no service: what must be redacted",
        "hunter2": "the same",
        "BEGIN RSA PRIVATE KEY": "the line alone, without a key",
    },
    "tests/unit/test_settings.py": {
        "password": "shows how a URL is written",
        "HIDDEN": "of no service: it must not be repeated in an error",
        "hunter2": "the same",
    },
    "tests/unit/test_signature.py": {
        EXAMPLE: "the standard's own example",
        "msg_p5jXN8AQM9LWM0D4loKWxJek": "a message id of that example",
    },
}
# What of ours a detector does not know, and what of the history: lines that were added and taken away again.
OURS = re.compile(rb"\b(?:whsec|whsk)_[A-Za-z0-9+/]{24,}={0,2}|\bdhk_[0-9a-f]{48}")
GONE = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s*(?:\\n)?\s*[A-Za-z0-9+/]{40}"
    rb"|\b(?:ghp|gho|ghs|github_pat|glpat|npm|xox[bp]|sk_live)_?[A-Za-z0-9-]{24,}|\bAKIA[0-9A-Z]{16}\b"
    rb"|\beyJ[A-Za-z0-9_-]{16,}\.eyJ[A-Za-z0-9_-]{16,}\."
)


def git(*arguments: str) -> bytes:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no clone, or git is missing: apt-get install git")
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


def found(paths: Iterable[Path]) -> dict[str, set[str]]:
    """Path -> what the detectors take for a secret there."""
    with transient_settings({"plugins_used": PLUGINS}):
        collection = SecretsCollection()
        for path in paths:
            collection.scan_file(str(path))
        held: dict[str, set[str]] = {}
        for name, secret in collection:
            held.setdefault(name, set()).add(str(secret.secret_value))
    return held


def tracked() -> list[Path]:
    return [ROOT / name for name in git("ls-files", "-z").decode().split("\0") if name and (ROOT / name).is_file()]


def test_no_file_that_is_tracked_holds_a_secret() -> None:
    others = [path for path in tracked() if path != Path(__file__).resolve()]  # this one is full of examples
    held = {str(Path(path).relative_to(ROOT)): values for path, values in found(others).items()}
    unexplained = {path: values - EXCEPTIONS.get(path, {}).keys() for path, values in held.items()}
    assert {path: values for path, values in unexplained.items() if values} == {}
    stale = {path: values.keys() - held.get(path, set()) for path, values in EXCEPTIONS.items()}
    assert {path: values for path, values in stale.items() if values} == {}, "an exception for nothing"


def test_no_file_that_is_tracked_holds_a_key_of_our_own_making() -> None:
    """But those that are plainly of a test: of one letter, of words, of the standard."""
    held = {match for path in tracked() for match in OURS.findall(path.read_bytes()) if _is_random(match)}
    assert held == {EXAMPLE.encode(), SAYS_SO.encode()}


def test_the_history_holds_no_key_or_token_either() -> None:
    added = b"\n".join(line for line in git("log", "-p", "--no-color", "--unified=0").splitlines() if line[:1] == b"+")
    assert GONE.findall(added) == []


PLANTED = {
    "a private key": "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2,
    "a key of AWS": "aws = 'AK" + "IA" + "Q7GZ3XKPL2MNB4VC'",
    "a token of GitHub": "token = 'gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8'",
    "a JSON web token": "'ey"
    + "JhbGciOiJIUzI1NiJ9."
    + "ey"
    + "JzdWIiOiIxMjM0NTY3ODkwIn0."
    + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U'",
    "a password in a URL": "postgresql://duehook:" + secrets.token_hex(8) + "@db.internal/duehook",
    "a random string": f"key = '{secrets.token_hex(32)}'",
    "a random string in Base64": "key = '" + "q7XkPz9/Wv3LmR+T2yBnHs8JdFgC6aEu0oI1t4MxKwQ=" + "'",
}


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED)
def test_a_secret_that_is_planted_is_found(tmp_path: Path, text: str) -> None:
    planted = tmp_path / "settings.py"
    planted.write_text(f"# nothing to see here\n{text}\n")
    assert found([planted]), text


@pytest.mark.parametrize("begin", ["whsec_", "whsk_", "dhk_"])
def test_a_key_of_our_own_that_is_planted_is_found(begin: str) -> None:
    (match,) = OURS.findall(f"'{begin}{secrets.token_hex(24)}'".encode())
    assert _is_random(match)


def test_a_key_that_was_committed_once_is_found() -> None:
    for name in ("a private key", "a key of AWS", "a token of GitHub", "a JSON web token"):
        assert GONE.search(PLANTED[name].encode()), name


def _is_random(key: bytes) -> bool:
    """Neither one letter again and again, nor words: letters, digits and cases change all the time."""
    body = key.partition(b"_")[2].decode()
    kinds = [each.isdigit() + 2 * each.isupper() for each in body]
    return len(set(body)) > 10 and sum(one != other for one, other in pairwise(kinds)) > 8
