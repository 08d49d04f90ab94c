"""Settings: environment variables `DUEHOOK_*`, or a `.env` file in the working folder."""

import difflib
import os
import ssl
from datetime import timedelta
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from dotenv import dotenv_values
from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.domain.proxies import parse_proxy
from app.domain.urls import Unacceptable

PREFIX = "DUEHOOK_"
Network = IPv4Network | IPv6Network
# From the time the relay publishes to the time a worker has acted, a wake-up may be held for the horizon and then
# wait for room; the restore sweep of the broker comes round after that.
LONGEST_TASK_WAIT = 10.0
RESTORE_INTERVAL = 5.0
SHORTEST_KEY = 32
LONGEST = 10 * 366 * 24 * 3600.0
Seconds = Annotated[float, Field(gt=0, le=LONGEST)]
SecondsOrNone = Annotated[float, Field(ge=0, le=LONGEST)]
Rate = Annotated[float, Field(ge=0.001, le=1e6)]


_ESCAPED = "with @ / ? # ; in the password written as %40 %2F %3F %23 %3B"


def listed(text: str) -> list[str]:
    """The parts of a list as it is written in a setting: with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


class SettingsError(Exception):
    """The settings don't work; the message is one sentence that says what to change."""


class Settings(BaseSettings):
    """One screen. Every name here is `DUEHOOK_` and the same in capitals."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True, allow_inf_nan=False
    )

    database_url: SecretStr | None = None
    broker_url: SecretStr | None = None
    home: Path = Path(".duehook")
    secrets_key: Annotated[list[SecretStr], NoDecode] = []
    log_level: str = "info"
    api_host: str = "127.0.0.1"
    api_port: int = Field(8300, ge=0, le=65535)
    api_url: str | None = Field(None, description="the API that commands ask, when it is not the home's")
    api_key: SecretStr | None = Field(None, description="and a key of it")
    allowed_networks: Annotated[list[Network], NoDecode] = []
    ca_bundle: Path | None = Field(None, description="PEM file of authorities to trust beside the system's")
    egress_proxy: SecretStr | None = Field(None, description="http://[user:password@]host:port for all deliveries")
    deadline_seconds: Seconds = 15
    lease_seconds: Seconds = 45
    visibility_timeout_seconds: Seconds = 120
    horizon_seconds: SecondsOrNone = 10
    publish_lease_seconds: Seconds = 60
    sweep_seconds: Seconds = 30
    max_event_bytes: int = Field(1024 * 1024, gt=0, le=256 * 1024 * 1024)
    max_age_seconds: Seconds = 5 * 24 * 3600
    max_retry_after_seconds: SecondsOrNone = 6 * 3600
    disable_after_days: float = Field(5, gt=0, le=LONGEST / (24 * 3600), description="of failures and nothing else")
    max_in_flight: int = Field(200, gt=0, description="sends at once in one delivery worker")
    max_in_flight_each: int = Field(50, gt=0, description="of these to one endpoint, unless it says otherwise")
    tenant_requests_per_second: Rate | None = Field(None, description="of each tenant and API process; 429 beyond")
    tenant_events_per_second: Rate | None = Field(None, description="the same of events over the API, lists counted")
    tenant_endpoints: int | None = Field(None, gt=0, description="that a tenant may have, over all processes")
    retention_days: float = Field(30, gt=0, le=LONGEST / (24 * 3600))
    metrics_token: SecretStr | None = Field(None, description="that /metrics asks for, as a bearer token")
    metrics_port: int | None = Field(None, gt=0, le=65535, description="this process's own metrics, on the API's host")
    flower_port: int = Field(5555, ge=0, le=65535, description="on the API's host")
    flower_login: SecretStr | None = Field(None, description="`user:password` that Flower asks for")
    ready_file: Path | None = Field(None, description="written when this process is ready, for whoever started it")

    # Of two validators that run before a field's own, the later one runs first.
    @field_validator("allowed_networks", mode="before")
    @classmethod
    def _networks(cls, value: object) -> object:
        return [ip_network(each) for each in value] if isinstance(value, list) else value

    @field_validator("secrets_key", "allowed_networks", mode="before")
    @classmethod
    def _a_list(cls, value: object) -> object:
        return listed(value) if isinstance(value, str) else value

    @field_validator("home")
    @classmethod
    def _at_home(cls, value: Path) -> Path:
        return value.expanduser()  # no shell has read a .env file

    @field_validator("ca_bundle")
    @classmethod
    def _certificates(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        path = value.expanduser()
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
        except ssl.SSLError:
            raise ValueError(f"{path} is no file of certificates in PEM form") from None
        except OSError as error:
            raise ValueError(f"{path} can't be read: {error.strerror}") from None
        return path

    @field_validator("egress_proxy")
    @classmethod
    def _a_proxy(cls, value: SecretStr | None) -> SecretStr | None:
        proxy = value and parse_proxy(value.get_secret_value())
        if isinstance(proxy, Unacceptable):
            raise ValueError(proxy.sentence)
        return value

    @field_validator("secrets_key")
    @classmethod
    def _long_keys(cls, value: list[SecretStr]) -> list[SecretStr]:
        if any(len(key.get_secret_value()) < SHORTEST_KEY for key in value):
            raise ValueError(f"each key needs {SHORTEST_KEY} characters or more, such as `openssl rand -hex 32` makes")
        return value

    @field_validator("log_level")
    @classmethod
    def _a_level(cls, value: str) -> str:
        if value.lower() not in ("debug", "info", "warning", "error"):
            raise ValueError("use debug, info, warning or error")
        return value.lower()

    @field_validator("flower_login")
    @classmethod
    def _a_login(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not all(value.get_secret_value().partition(":")):
            raise ValueError("write it as user:password")
        return value

    @field_validator("database_url", "broker_url")
    @classmethod
    def _a_url(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        schemes = {
            "database_url": ("postgresql://", "postgres://", "postgresql+psycopg://"),
            "broker_url": ("redis://", "rediss://", "amqp://", "amqps://"),
        }[str(info.field_name)]
        if value is not None and not value.get_secret_value().startswith(schemes):
            raise ValueError(f"use a URL that begins with {schemes[0]}")
        if value is not None and not all(map(_is_clear, value.get_secret_value().split(";"))):
            raise ValueError(f"write it as {schemes[0]}user:password@host:port/name, {_ESCAPED}")
        return value

    @cached_property
    def deadline(self) -> timedelta:
        return timedelta(seconds=self.deadline_seconds)

    @cached_property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.lease_seconds)

    @cached_property
    def horizon(self) -> timedelta:
        return timedelta(seconds=self.horizon_seconds)

    @cached_property
    def publish_lease(self) -> timedelta:
        return timedelta(seconds=self.publish_lease_seconds)

    @cached_property
    def max_age(self) -> timedelta:
        return timedelta(seconds=self.max_age_seconds)

    @cached_property
    def max_retry_after(self) -> timedelta:
        return timedelta(seconds=self.max_retry_after_seconds)

    def tell_ready(self) -> None:
        """Write this process's id into the ready file, if there is to be one; a repeat makes the file new again."""
        if self.ready_file is not None:
            written = self.ready_file.with_suffix(f".{os.getpid()}")
            written.write_text(str(os.getpid()), encoding="ascii")
            written.replace(self.ready_file)

    def tell_unready(self) -> None:
        """Take the ready file away until `tell_ready`; a repeat does nothing."""
        if self.ready_file is not None:
            self.ready_file.unlink(missing_ok=True)

    def check_relations(self) -> None:
        """Raise `SettingsError` when two settings contradict each other."""
        if self.deadline_seconds >= self.lease_seconds:
            raise SettingsError(
                f"DUEHOOK_DEADLINE_SECONDS ({self.deadline_seconds:g}) must be less than DUEHOOK_LEASE_SECONDS"
                f" ({self.lease_seconds:g}), or a request could outlive its claim: raise the lease"
            )
        held = self.horizon_seconds + LONGEST_TASK_WAIT + RESTORE_INTERVAL
        if held >= self.visibility_timeout_seconds:
            raise SettingsError(
                f"DUEHOOK_VISIBILITY_TIMEOUT_SECONDS ({self.visibility_timeout_seconds:g}) must be more than"
                f" DUEHOOK_HORIZON_SECONDS + {LONGEST_TASK_WAIT + RESTORE_INTERVAL:g} ({held:g}), or the broker would"
                " redeliver wake-ups that a worker still holds: raise the timeout"
            )
        if self.api_port == self.flower_port != 0:
            raise SettingsError(
                f"DUEHOOK_API_PORT and DUEHOOK_FLOWER_PORT are both {self.api_port}: give Flower another port"
            )


def _is_clear(url: str) -> bool:
    """Whether everybody reads it alike. A password with a bare `@` or `/` ends too early: its rest becomes a host or
    a port, which errors name, in logs.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return bool(parts.scheme) and ("@" not in url or (url.count("@") == 1 and "@" in parts.netloc))


def load(**given: object) -> Settings:
    """The settings of this process, `given` before the environment; raises `SettingsError` with one sentence."""
    try:
        _refuse_unknown_names()
        settings = Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = PREFIX + str(first["loc"][0]).upper()
        why = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{name} is not right: {why[0].lower()}{why[1:]}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the file .env can't be read ({error}): correct it or remove it") from None
    settings.check_relations()
    return settings


def _refuse_unknown_names() -> None:
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    for name in [*os.environ, *dotenv_values(".env")]:
        if name.upper().startswith(PREFIX) and name.upper() not in known:
            nearest = difflib.get_close_matches(name.upper(), known, 1, cutoff=0)
            raise SettingsError(f"{name} is not a setting of duehook; did you mean {nearest[0]}?")
