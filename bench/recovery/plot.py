"""The report as a plot; the one place that needs matplotlib."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.recovery.report import Report

NAMES = {
    "flooded": "event, flooded tenant",
    "others": "event, another tenant",
    "expired": "reservation expired",
    "told_flooded": "flooded tenant told of it",
    "told_others": "another tenant told of it",
}
GOAL = 2_000.0  # milliseconds


def draw(report: Report, file: Path) -> None:
    """Oldest due, what is left, lag of fresh work and what is in use, over the seconds since the start."""
    figure = Figure(figsize=(10, 11), layout="constrained")
    FigureCanvasAgg(figure)
    oldest, left, lags, use = figure.subplots(4, 1, sharex=True)
    _oldest(report, oldest)
    _left(report, left)
    _lags(report, lags)
    _use(report, use)
    use.set_xlabel("seconds since the processes were started")
    plan = report.plan
    figure.suptitle(f"{plan.deliveries:,} deliveries and {plan.expiries:,} expiries overdue by up to a day")
    figure.savefig(file, format=file.suffix.removeprefix(".") or "png", dpi=110)


def _oldest(report: Report, axes: Axes) -> None:
    at = [moment.at for moment in report.moments]
    axes.plot(at, [moment.sample.oldest_reservation / 3600 for moment in report.moments], label="reservations")
    axes.plot(at, [moment.sample.oldest_delivery / 3600 for moment in report.moments], label="deliveries")
    _finish(axes, "oldest due, hours")


def _left(report: Report, axes: Axes) -> None:
    at = [moment.at for moment in report.moments]
    axes.plot(at, [moment.reservations_left for moment in report.moments], label="reservations")
    axes.plot(at, [moment.deliveries_left for moment in report.moments], label="deliveries")
    _finish(axes, "overdue ones left")


def _lags(report: Report, axes: Axes) -> None:
    for name, points in report.lags_over_time.items():
        axes.plot([at for at, _ in points], [max(lag, 1.0) for _, lag in points], ".", markersize=2, label=NAMES[name])
    axes.axhline(GOAL, color="black", linewidth=0.8, linestyle="--")
    axes.set_yscale("log")
    _finish(axes, "lag of fresh work, ms")


def _use(report: Report, axes: Axes) -> None:
    at = [moment.at for moment in report.moments]
    for name in report.connections:
        counts = [moment.sample.connections.get(name, 0) for moment in report.moments]
        axes.plot(at, counts, label=f"connections, {name.removeprefix('duehook ')}")
    for name in report.sockets:
        axes.plot(at, [moment.sample.sockets[name] for moment in report.moments], "--", label=f"sockets of a {name}")
    axes.set_yscale("log")
    _finish(axes, "in use")


def _finish(axes: Axes, label: str) -> None:
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", markerscale=4, loc="center left", bbox_to_anchor=(1.0, 0.5))
