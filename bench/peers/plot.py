"""The report as a plot; the one place that needs matplotlib."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.peers.printing import KINDS
from bench.peers.report import Report


def draw(report: Report, file: Path) -> None:
    """What a delivery costs, by whom, and how many go out in a second; the product on top."""
    figure = Figure(figsize=(10, 1.5 + 0.9 * len(report.results)), layout="constrained")
    FigureCanvasAgg(figure)
    costs, rates = figure.subplots(2, 1)
    _costs(report, costs)
    _rates(report, rates)
    cores = report.machine.cores
    figure.suptitle(f"Signed 1 KB webhooks on {cores} cores: medians of {report.plan.rounds} rounds, side by side")
    figure.savefig(file, format=file.suffix.removeprefix(".") or "png", dpi=110)


def _costs(report: Report, axes: Axes) -> None:
    titles, left = [each.title for each in report.results], [0.0] * len(report.results)
    for kind in KINDS:
        widths = [each.median.cpu.get(kind, 0.0) for each in report.results]
        axes.barh(titles, widths, left=left, label=kind)
        left = [before + width for before, width in zip(left, widths, strict=True)]
    for place, each in enumerate(report.results):
        axes.annotate(f" {each.median.sending:.2f}", (left[place], place), va="center")
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    _finish(axes, "CPU seconds per 1,000 deliveries, all processes but producer and sink")


def _rates(report: Report, axes: Axes) -> None:
    rates = [each.median.per_second for each in report.results]
    colours = ["C0", *["C7"] * (len(rates) - 1)]
    axes.barh([each.title for each in report.results], rates, color=colours)
    for place, rate in enumerate(rates):
        axes.annotate(f" {rate:,.0f}", (rate, place), va="center")
    _finish(axes, "deliveries per second")


def _finish(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(axis="x", alpha=0.3)
