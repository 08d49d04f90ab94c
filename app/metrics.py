"""What a process counts while it works, by the names that Prometheus gets; docs/metrics.md says what each means.

Labels are from closed sets. What one process has counted travels as plain numbers by sample, so that any process of
its host can serve the sum.
"""

import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from threading import Thread
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST, ThreadingWSGIServer
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.domain.states import DeadReason, Outcome
from app.domain.wakeups import Lane

PREFIX = "duehook_"
CONTENT_TYPE = CONTENT_TYPE_LATEST
OURS = CollectorRegistry()
_LAGS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 43200, 86400)
_MOMENTS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

EXPIRY_LAG = Histogram(
    f"{PREFIX}expiry_lag_seconds",
    "From expires_at of a reservation to the moment it was expired, by the database's clock.",
    buckets=_LAGS,
    registry=OURS,
)
DELIVERY_LAG = Histogram(
    f"{PREFIX}delivery_lag_seconds",
    "From when a delivery was due first (or re-opened last) to its acceptance by the receiver.",
    buckets=_LAGS,
    registry=OURS,
)
CLAIM_TO_COMMIT = Histogram(
    f"{PREFIX}claim_to_commit_seconds",
    "From the claim of a delivery to the commit of what came of it: of this a lease must leave enough.",
    buckets=_MOMENTS,
    registry=OURS,
)
RETRY_AGE = Histogram(
    f"{PREFIX}retry_age_seconds",
    "How old a delivery was when it was tried again, from when it was due first (or re-opened last).",
    buckets=_LAGS,
    registry=OURS,
)
ATTEMPTS = Counter(
    f"{PREFIX}attempts", "HTTP tries whose outcome was recorded, by outcome.", ["outcome"], registry=OURS
)
NOOPS = Counter(
    f"{PREFIX}noops",
    "Looks at something that came to nothing, by kind of thing and why: expected, but not in ever greater part.",
    ["kind", "reason"],
    registry=OURS,
)
DEAD = Counter(f"{PREFIX}dead", "Deliveries that became dead letters, by reason.", ["reason"], registry=OURS)
LEASES_LOST = Counter(
    f"{PREFIX}leases_lost",
    "Claims whose lease ended before an outcome was recorded: their worker died, froze or was cut off.",
    registry=OURS,
)
PUBLISHED = Counter(f"{PREFIX}published_ids", "Ids that the relay published, by lane.", ["lane"], registry=OURS)
PUBLISH_FAILURES = Counter(
    f"{PREFIX}publish_failures",
    "Looks of the relay that failed, for the broker or the database was away.",
    registry=OURS,
)
SENDING = Gauge(f"{PREFIX}sends_in_flight", "Deliveries in the air.", registry=OURS)
PLACES = Gauge(f"{PREFIX}sends_most", "Deliveries that may be in the air at once.", registry=OURS)
REQUESTS = Histogram(
    f"{PREFIX}api_request_seconds",
    "Time to answer a request of the API, by route and class of status.",
    ["route", "status"],
    buckets=_MOMENTS,
    registry=OURS,
)

# There from the start: an alert on an increase does not see the first of a series that begins with it.
for _outcome in set(Outcome) - {Outcome.ABANDONED}:  # which is no record: a lease lost
    ATTEMPTS.labels(_outcome.value)
for _reason in DeadReason:
    DEAD.labels(_reason.value)
for _lane in Lane:
    PUBLISHED.labels(_lane.value)

Samples = dict[str, float]


def counted() -> tuple[Samples, Samples]:
    """What this process has counted since its start, and how its gauges stand, by sample."""
    sums: Samples = {}
    gauges: Samples = {}
    for family in OURS.collect():
        into = gauges if family.type == "gauge" else sums
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                into[_key(sample.name, sample.labels)] = sample.value
    return sums, gauges


def exposition(samples: Iterable[Samples] = (), more: Iterable[Metric] = ()) -> bytes:
    """The sum of `samples`, each of them as `counted` gives them, in the text format of Prometheus; then `more`."""
    registry = CollectorRegistry()
    registry.register(_Given([*_summed(samples), *more]))
    return generate_latest(registry)


class _Given(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _summed(samples: Iterable[Samples]) -> list[Metric]:
    """Of another version of the program only what this one knows."""
    totals: dict[str, Samples] = {}
    for each in samples:
        for key, value in each.items():
            name, labels = key.split("{", 1)
            of_name = totals.setdefault(name, {})
            of_name[labels] = of_name.get(labels, 0.0) + value
    families = []
    for known in OURS.collect():
        family = Metric(known.name, known.documentation, known.type)
        for suffix in ("", "_total", "_bucket", "_count", "_sum"):
            of_name = totals.get(known.name + suffix, {})
            for labels, value in sorted(((json.loads("{" + each), of_name[each]) for each in of_name), key=_place):
                family.add_sample(known.name + suffix, labels, value)
        families.append(family)
    return families


def _place(sample: tuple[dict[str, str], float]) -> tuple[list[str], float]:
    """Buckets in their order; a database keeps none."""
    labels = sample[0]
    return [labels[name] for name in sorted(labels) if name != "le"], float(labels.get("le", 0))


def _key(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{json.dumps(labels)}"


def allowed(authorization: str | None, token: str | None) -> bool:
    """Whether who sent this `Authorization` may read metrics; without a token anybody may."""
    return token is None or hmac.compare_digest((authorization or "").encode(), f"Bearer {token}".encode())


def serve(host: str, port: int, token: str | None) -> None:
    """Serve what this process alone has counted, at `/metrics` until it ends; OSError for a taken port."""
    server = make_server(host, port, _own(token), ThreadingWSGIServer, handler_class=_Silent)
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()


def _own(token: str | None) -> Callable[..., Iterable[bytes]]:
    def answer(environ: Mapping[str, str], start_response: Callable[..., object]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/metrics":
            start_response("404 Not Found", [])
            return []
        if not allowed(environ.get("HTTP_AUTHORIZATION"), token):
            start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer")])
            return []
        start_response("200 OK", [("Content-Type", CONTENT_TYPE)])
        return [exposition(counted())]

    return answer


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a scrape is no news."""
