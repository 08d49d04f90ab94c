"""Plots as SVG text, for pages that need no script and no other file: times series over seconds.

Colours are CSS custom properties with a default, so that a page may set them for light and dark:
`--plot-1` … `--plot-4`, `--plot-axis`, `--plot-grid`, `--plot-limit`, `--plot-shade`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count

COLOURS = ("#1d6fb8", "#b3541e", "#3c8a3f", "#7a4fa3")
DASHES = ("", "6 3", "2 3", "9 3 2 3")  # colour is not all that tells them apart
FAR = 4.0  # a limit so many times the highest value is told, not drawn: it would press the curve to the ground
MOST_POINTS = 600  # of a series; a plot is not that many pixels wide
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: (seconds, value), in order of time."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Span:
    """A time to be shaded, in seconds, and what it was."""

    name: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Limit:
    """A level that is not to be passed."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Plot:
    """Everything in one picture; `unit` is that of the values, time is in seconds."""

    title: str
    unit: str
    series: Sequence[Series]
    spans: Sequence[Span] = ()
    limit: Limit | None = None
    width: int = 720
    height: int = 220

    def description(self) -> str:
        """What the picture shows, for those who can't see it."""
        parts = [f"{each.name}: {_story(each.points, self.unit)}" for each in self.series]
        parts += [f"{span.name} from {span.began:.1f} s to {span.ended:.1f} s" for span in self.spans]
        if self.limit:
            parts.append(f"{self.limit.name}: {_number(self.limit.value)} {self.unit}")
        return "; ".join(parts) + "."


def svg(plot: Plot) -> str:
    """The picture as one `<svg>` element. All text in it is escaped."""
    number = next(_numbers)
    title, description = f"plot-{number}-title", f"plot-{number}-desc"
    body = "\n".join(_parts(plot, _frame(plot)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {plot.width} {plot.height}" role="img"'
        f' aria-labelledby="{title} {description}" font-family="sans-serif" font-size="12">\n'
        f'<title id="{title}">{escape(plot.title)}</title>\n'
        f'<desc id="{description}">{escape(plot.description())}</desc>\n{body}\n</svg>'
    )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values from `low` to `high`, at most `most` + 1 of them; only `low` where both are equal."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each for each in (power, 2 * power, 5 * power, 10 * power) if each >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 10) for place in range(first, last + 1)]


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """As many as can be seen: of each stretch the lowest and the highest, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(2 * len(points) / most)
    stretches = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        point
        for some in stretches
        for point in sorted({min(some, key=lambda each: each[1]), max(some, key=lambda each: each[1])})
    ]


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where values are on the picture."""

    left: float
    right: float
    top: float
    bottom: float
    began: float
    ended: float
    highest: float

    def x(self, at: float) -> float:
        share = (min(max(at, self.began), self.ended) - self.began) / (self.ended - self.began)
        return round(self.left + share * (self.right - self.left), 1)

    def y(self, value: float) -> float:
        return round(self.bottom - min(max(value, 0.0), self.highest) / self.highest * (self.bottom - self.top), 1)


def _frame(plot: Plot) -> _Frame:
    times = [at for each in plot.series for at, _ in each.points] + [
        at for span in plot.spans for at in (span.began, span.ended)
    ]
    began, ended = (min(times), max(times)) if times else (0.0, 1.0)
    highest = max((value for each in plot.series for _, value in each.points), default=0.0)
    if plot.limit and _is_near(plot.limit, highest):
        highest = max(highest, plot.limit.value)
    highest = highest * 1.08 if highest > 0 else 1.0
    return _Frame(52, plot.width - 12, 34, plot.height - 36, began, max(ended, began + 1e-3), highest)


def _is_near(limit: Limit, highest: float) -> bool:
    return limit.value <= max(highest, 1e-9) * FAR


def _parts(plot: Plot, frame: _Frame) -> Iterator[str]:
    yield from (_span(each, frame) for each in plot.spans)
    yield from _grid(plot, frame)
    if plot.limit:
        yield from _limit(plot.limit, plot.unit, frame, max((v for s in plot.series for _, v in s.points), default=0))
    for place, each in enumerate(plot.series):
        yield _curve(each, place, frame)
    yield from _legend(plot, frame)


def _span(span: Span, frame: _Frame) -> str:
    left, right = frame.x(span.began), frame.x(span.ended)
    return (
        f'<rect x="{left}" y="{frame.top}" width="{max(1.0, round(right - left, 1))}"'
        f' height="{frame.bottom - frame.top}" style="fill:var(--plot-shade,#d9534f);fill-opacity:.16">'
        f"<title>{escape(span.name)}</title></rect>"
    )


def _grid(plot: Plot, frame: _Frame) -> Iterator[str]:
    line = 'style="stroke:var(--plot-grid,#ccc);stroke-width:.6"'
    text = 'style="fill:var(--plot-axis,#555)"'
    for value in ticks(0, frame.highest, 4):
        y = frame.y(value)
        yield f'<line x1="{frame.left}" x2="{frame.right}" y1="{y}" y2="{y}" {line}/>'
        yield f'<text x="{frame.left - 6}" y="{y + 4}" text-anchor="end" {text}>{_number(value)}</text>'
    for at in ticks(frame.began, frame.ended, 8):
        x = frame.x(at)
        yield f'<line x1="{x}" x2="{x}" y1="{frame.bottom}" y2="{frame.bottom + 4}" {line}/>'
        yield f'<text x="{x}" y="{frame.bottom + 17}" text-anchor="middle" {text}>{_number(at)}</text>'
    middle = (frame.left + frame.right) / 2
    yield f'<text x="{middle}" y="{plot.height - 4}" text-anchor="middle" {text}>seconds</text>'
    yield f'<text x="{frame.left - 6}" y="{frame.top - 8}" text-anchor="end" {text}>{escape(plot.unit)}</text>'


def _limit(limit: Limit, unit: str, frame: _Frame, highest: float) -> Iterator[str]:
    text = 'style="fill:var(--plot-limit,#b00020)"'
    told = f"{escape(limit.name)}: {_number(limit.value)} {escape(unit)}"
    if not _is_near(limit, highest):
        yield f'<text x="{frame.right}" y="16" text-anchor="end" {text}>{told}, far above</text>'
        return
    y = frame.y(limit.value)
    line = "stroke:var(--plot-limit,#b00020);stroke-dasharray:4 3"
    yield f'<line x1="{frame.left}" x2="{frame.right}" y1="{y}" y2="{y}" style="{line}"/>'
    yield f'<text x="{frame.right}" y="{y - 4}" text-anchor="end" {text}>{told}</text>'


def _curve(series: Series, place: int, frame: _Frame) -> str:
    points = " ".join(f"{frame.x(at)},{frame.y(value)}" for at, value in thinned(series.points))
    return f'<polyline points="{points}" style="fill:none;{_stroke(place)};stroke-width:1.8;stroke-linejoin:round"/>'


def _legend(plot: Plot, frame: _Frame) -> Iterator[str]:
    left = frame.left
    text = 'style="fill:var(--plot-axis,#555)"'
    for place, each in enumerate(plot.series):
        yield f'<line x1="{left}" x2="{left + 22}" y1="12" y2="12" style="{_stroke(place)};stroke-width:1.8"/>'
        yield f'<text x="{left + 27}" y="16" {text}>{escape(each.name)}</text>'
        left += 45 + 6.6 * len(each.name)
    if plot.spans:
        yield (
            f'<rect x="{left}" y="6" width="22" height="12"'
            ' style="fill:var(--plot-shade,#d9534f);fill-opacity:.16"/>'
            f'<text x="{left + 27}" y="16" {text}>{escape(plot.spans[0].name)}</text>'
        )


def _stroke(place: int) -> str:
    colour = COLOURS[place % len(COLOURS)]
    dash = DASHES[place % len(DASHES)]
    return f"stroke:var(--plot-{place % len(COLOURS) + 1},{colour})" + (f";stroke-dasharray:{dash}" if dash else "")


def _story(points: Sequence[tuple[float, float]], unit: str) -> str:
    if not points:
        return "no samples"
    at, value = max(points, key=lambda each: each[1])
    return f"at most {_number(value)} {unit}, at {at:.1f} s, and {_number(points[-1][1])} {unit} in the end"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
