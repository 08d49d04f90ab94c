"""The report as one HTML file that needs nothing else: no script, no font, no other file."""

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from app.eval.printing import counted, effects_of, shown
from app.eval.report import FaultReport, Report
from app.eval.thresholds import FIGURES
from app.plots import Limit, Plot, Series, Span, svg

_pages = Environment(
    loader=PackageLoader("app.eval"),
    autoescape=select_autoescape(default=True),  # whatever came from outside is text
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(report: Report) -> str:
    """All of the file."""
    return _pages.get_template("report.html").render(
        report=report,
        problems=report.problems(),
        figures=FIGURES,
        plot=_plot,
        shown=shown,
        counted=counted,
        effects_of=effects_of,
    )


def _plot(fault: FaultReport) -> Markup:
    """How late both clocks were meanwhile. `app.plots` has escaped all text in it."""
    limit = next((check.limit for check in fault.checks if check.figure == "oldest_due_seconds"), None)
    spans = []
    if fault.began_fault is not None and fault.ended_fault is not None:
        spans = [Span("fault", fault.began_fault, fault.ended_fault)]
    plot = Plot(
        title=f"{fault.name}: age of what is due longest",
        unit="s",
        series=[
            Series("deliveries", [(each.at, each.delivery) for each in fault.samples]),
            Series("reservations", [(each.at, each.reservation) for each in fault.samples]),
        ],
        spans=spans,
        limit=None if limit is None else Limit("threshold", limit),
    )
    return Markup(svg(plot))
