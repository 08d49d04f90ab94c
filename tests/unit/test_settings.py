"""Settings: each wrong one is refused with one sentence that says what to change; small values are legal."""

from base64 import b64encode
from ipaddress import ip_network
from pathlib import Path

import pytest

from app.domain.proxies import Proxy, parse_proxy
from app.settings import Settings, SettingsError, load

KEY = "k" * 32
PROXY_SHAPE = "write it as http://host:port or http://user:password@host:port, with no path"
PROXY_LOGIN = "the login of a proxy is user:password, and the user's name holds no colon"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No `.env` but the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as refused:
        load()
    return str(refused.value)


def test_nothing_has_to_be_set() -> None:
    settings = load()
    assert (settings.api_port, settings.home, settings.database_url) == (8300, Path(".duehook"), None)
    assert (settings.deadline_seconds, settings.lease_seconds, settings.horizon_seconds) == (15, 45, 10)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("DATABASE_URL", "mysql://h/d", "use a URL that begins with postgresql://"),
        ("BROKER_URL", "sqs://h", "use a URL that begins with redis://"),
        ("SECRETS_KEY", "short", "each key needs 32 characters or more, such as `openssl rand -hex 32` makes"),
        ("SECRETS_KEY", f"{KEY},short", "each key needs 32 characters or more, such as `openssl rand -hex 32` makes"),
        ("LOG_LEVEL", "loud", "use debug, info, warning or error"),
        ("API_PORT", "65536", "input should be less than or equal to 65535"),
        ("API_PORT", "-1", "input should be greater than or equal to 0"),
        ("API_PORT", "http", "input should be a valid integer, unable to parse string as an integer"),
        ("TENANT_REQUESTS_PER_SECOND", "0", "input should be greater than or equal to 0.001"),
        ("TENANT_EVENTS_PER_SECOND", "1e9", "input should be less than or equal to 1000000"),
        ("TENANT_ENDPOINTS", "0", "input should be greater than 0"),
        ("FLOWER_PORT", "65536", "input should be less than or equal to 65535"),
        ("FLOWER_LOGIN", "nobody", "write it as user:password"),
        ("FLOWER_LOGIN", "nobody:", "write it as user:password"),
        ("ALLOWED_NETWORKS", "10.0.0.1/8", "10.0.0.1/8 has host bits set"),
        ("ALLOWED_NETWORKS", "127.0.0.0/8,home", "'home' does not appear to be an IPv4 or IPv6 network"),
        ("CA_BUNDLE", "nowhere.pem", "nowhere.pem can't be read: No such file or directory"),
        ("CA_BUNDLE", __file__, f"{__file__} is no file of certificates in PEM form"),
        ("EGRESS_PROXY", "https://proxy:1", PROXY_SHAPE),
        ("EGRESS_PROXY", "proxy:3128", PROXY_SHAPE),
        ("EGRESS_PROXY", "http://proxy", PROXY_SHAPE),
        ("EGRESS_PROXY", "http://proxy:3128/path", PROXY_SHAPE),
        ("EGRESS_PROXY", "http://proxy:0", "a port is a number from 1 to 65535"),
        ("EGRESS_PROXY", "http://127.1:3128", "an IPv4 address is written as four decimal numbers"),
        ("EGRESS_PROXY", "http://u@proxy:1", PROXY_LOGIN),
        ("EGRESS_PROXY", "http://a%3Ab:p@proxy:1", PROXY_LOGIN),
        ("DEADLINE_SECONDS", "0", "input should be greater than 0"),
        ("DEADLINE_SECONDS", "soon", "input should be a valid number, unable to parse string as a number"),
        ("DEADLINE_SECONDS", "nan", "input should be a finite number"),
        ("LEASE_SECONDS", "inf", "input should be a finite number"),
        ("MAX_AGE_SECONDS", "1e300", "input should be less than or equal to 316224000"),
        ("HORIZON_SECONDS", "-1", "input should be greater than or equal to 0"),
        ("MAX_EVENT_BYTES", "0", "input should be greater than 0"),
        ("MAX_IN_FLIGHT", "0", "input should be greater than 0"),
        ("RETENTION_DAYS", "1e9", "input should be less than or equal to 3660"),
    ],
)
def test_a_wrong_value_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str) -> None:
    assert refusal(monkeypatch, **{f"DUEHOOK_{name}": value}) == f"DUEHOOK_{name} is not right: {why}"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("DUEHOOK_DATABSE_URL", "DUEHOOK_DATABASE_URL"),
        ("DUEHOOK_PORT", "DUEHOOK_API_PORT"),
        ("duehook_deadline", "DUEHOOK_DEADLINE_SECONDS"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_known_one(
    monkeypatch: pytest.MonkeyPatch, name: str, nearest: str
) -> None:
    assert refusal(monkeypatch, **{name: "1"}) == f"{name} is not a setting of duehook; did you mean {nearest}?"


def test_a_deadline_that_could_outlive_the_lease_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = refusal(monkeypatch, DUEHOOK_DEADLINE_SECONDS="45")
    assert sentence == (
        "DUEHOOK_DEADLINE_SECONDS (45) must be less than DUEHOOK_LEASE_SECONDS (45), or a request could outlive its "
        "claim: raise the lease"
    )


def test_a_visibility_timeout_within_which_wakeups_are_held_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = refusal(monkeypatch, DUEHOOK_HORIZON_SECONDS="105")
    assert sentence == (
        "DUEHOOK_VISIBILITY_TIMEOUT_SECONDS (120) must be more than DUEHOOK_HORIZON_SECONDS + 15 (120), or the broker "
        "would redeliver wake-ups that a worker still holds: raise the timeout"
    )


def test_small_values_are_legal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "DEADLINE": "1",
        "LEASE": "3",
        "HORIZON": "0",
        "VISIBILITY_TIMEOUT": "15.5",
        "SWEEP": ".1",
    }.items():
        monkeypatch.setenv(f"DUEHOOK_{name}_SECONDS", value)
    settings = load()
    assert (settings.deadline.total_seconds(), settings.lease.total_seconds()) == (1, 3)
    assert settings.horizon.total_seconds() == 0


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUEHOOK_SECRETS_KEY", f" {KEY} , {KEY}2,")
    monkeypatch.setenv("DUEHOOK_ALLOWED_NETWORKS", "127.0.0.0/8, fd00::/8")
    settings = load()
    assert [key.get_secret_value() for key in settings.secrets_key] == [KEY, f"{KEY}2"]
    assert settings.allowed_networks == [ip_network("127.0.0.0/8"), ip_network("fd00::/8")]


def test_what_is_set_to_nothing_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.setenv(f"DUEHOOK_{name.upper()}", "")
    assert load().model_dump() == Settings.model_construct().model_dump()


def test_a_folder_is_no_ca_bundle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, DUEHOOK_CA_BUNDLE=str(folder)).startswith(f"DUEHOOK_CA_BUNDLE is not right: {folder} ")


@pytest.mark.parametrize(
    ("url", "proxy", "login"),
    [
        ("http://proxy:3128", ("proxy", 3128), None),
        ("HTTP://Proxy.Example:80/", ("proxy.example", 80), None),
        ("http://[fd00::1]:3128", ("fd00::1", 3128), None),
        ("http://u:p@10.0.0.1:8080", ("10.0.0.1", 8080), "u:p"),
        ("http://u%40home:p%3A%2F%40:@proxy:1", ("proxy", 1), "u@home:p:/@:"),
        ("http://u:@proxy:1", ("proxy", 1), "u:"),
        ("http://ü:p@proxy:1", ("proxy", 1), "ü:p"),
    ],
)
def test_an_egress_proxy_is_read_with_its_login(url: str, proxy: tuple[str, int], login: str | None) -> None:
    found = parse_proxy(url)
    assert isinstance(found, Proxy) and (found.host, found.port) == proxy
    assert found.authorization == (login and "Basic " + b64encode(login.encode()).decode())
    assert "Basic" not in repr(found)


@pytest.mark.parametrize("url", ["postgresql://h/d", "postgres://h/d", "postgresql+psycopg://h/d"])
def test_a_database_url_may_have_any_of_the_common_schemes(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DUEHOOK_DATABASE_URL", url)
    found = load().database_url
    assert found is not None and found.get_secret_value() == url


def test_a_dot_env_file_is_read_and_the_environment_wins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".env").write_text("DUEHOOK_API_PORT=9001\nDUEHOOK_HOME=~/there\nOTHER=1\n")
    assert load().api_port == 9001
    assert load().home == Path("~/there").expanduser()
    monkeypatch.setenv("DUEHOOK_API_PORT", "9002")
    assert load().api_port == 9002
    assert load(api_port=9003).api_port == 9003


def test_an_unknown_name_in_a_dot_env_file_is_refused_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".env").write_text("DUEHOOK_API_PRT=9001\n")
    assert "did you mean DUEHOOK_API_PORT?" in refusal(monkeypatch)


def test_a_dot_env_file_that_is_no_text_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".env").write_bytes(b"DUEHOOK_API_PORT=\xff\n")
    assert refusal(monkeypatch).startswith("the file .env can't be read (")


@pytest.mark.parametrize("name", ["DATABASE_URL", "SECRETS_KEY", "FLOWER_LOGIN", "METRICS_TOKEN", "EGRESS_PROXY"])
def test_no_secret_shows_when_settings_are_printed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    values = {
        "DATABASE_URL": "postgresql://u:HIDDEN@h/d",
        "SECRETS_KEY": f"HIDDEN{KEY}",
        "FLOWER_LOGIN": "u:HIDDEN",
        "EGRESS_PROXY": "http://u:HIDDEN@proxy:3128",
    }
    monkeypatch.setenv(f"DUEHOOK_{name}", values.get(name, "HIDDEN"))
    assert "HIDDEN" not in repr(load())


@pytest.mark.parametrize("name", ["DATABASE_URL", "BROKER_URL", "SECRETS_KEY", "FLOWER_LOGIN", "EGRESS_PROXY"])
def test_a_refusal_does_not_repeat_a_secret(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert "HIDDEN" not in refusal(monkeypatch, **{f"DUEHOOK_{name}": "HIDDEN"})


def test_one_port_for_two_servers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "both 8400" in refusal(monkeypatch, DUEHOOK_API_PORT="8400", DUEHOOK_FLOWER_PORT="8400")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://duehook:hunter2@ss@host/db",
        "postgresql://duehook:hun/ter2@host/db",
        "postgresql://duehook:hun#ter2@host/db",
        "postgresql://duehook:hun?ter2@host/db",
        "postgresql://duehook:hunter2@host:hunter2/db",
        "postgresql://duehook:hun[ter2@host/db",
        "redis://:hunter2@ss@host/0",
        "redis://:hun/ter2@host/0",
        "redis://:hun;ter2@host/0",
        "redis://:a@host/0;redis://:hun/ter2@host/0",
        "amqp://duehook:hun/ter2@host//",
    ],
)
def test_a_url_whose_password_is_not_escaped_is_refused_without_a_piece_of_it(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    name = "DUEHOOK_DATABASE_URL" if url.startswith("postgresql") else "DUEHOOK_BROKER_URL"
    why = refusal(monkeypatch, **{name: url})
    assert why.startswith(f"{name} is not right: write it as ")
    assert why.endswith("user:password@host:port/name, with @ / ? # ; in the password written as %40 %2F %3F %23 %3B")
    assert "hun" not in why and "ter2" not in why


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://host/db",
        "postgresql:///db?host=/run/postgresql",
        "postgresql://duehook:%40%2F:a@[::1]:5432/db?sslmode=require",
        "postgresql+psycopg://duehook@host/db",
    ],
)
def test_a_url_that_everybody_reads_alike_is_taken(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DUEHOOK_DATABASE_URL", url)
    monkeypatch.setenv("DUEHOOK_BROKER_URL", "redis://:a@one:6379/0;redis://:b@two:6379/0")
    settings = load()
    assert settings.database_url and settings.database_url.get_secret_value() == url
