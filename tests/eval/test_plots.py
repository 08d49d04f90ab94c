"""Plots as SVG: what is on them, in the right place, and nothing that could be markup."""

from xml.etree import ElementTree as ET

from app.plots import MOST_POINTS, Limit, Plot, Series, Span, svg, thinned, ticks

SVG = "{http://www.w3.org/2000/svg}"
LAG = Series("deliveries", [(0, 0), (1, 4), (2, 2), (4, 0)])


def drawn(plot: Plot) -> ET.Element:
    return ET.fromstring(svg(plot))


def points(of: ET.Element, place: int = 0) -> list[tuple[float, float]]:
    text = of.findall(f"{SVG}polyline")[place].attrib["points"]
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def texts(of: ET.Element) -> list[str]:
    return [each.text or "" for each in of.iter(f"{SVG}text")]


def test_a_curve_goes_up_where_values_do_and_from_the_left_to_the_right() -> None:
    picture = drawn(Plot("age", "s", [LAG]))
    curve = points(picture)
    assert [x for x, _ in curve] == sorted(x for x, _ in curve)
    heights = [y for _, y in curve]
    assert heights[0] == heights[3] == max(heights)
    assert heights[1] < heights[2] < heights[0]
    assert abs((heights[0] - heights[2]) * 2 - (heights[0] - heights[1])) < 0.5
    assert (curve[1][0] - curve[0][0]) * 4 == curve[3][0] - curve[0][0]


def test_axes_have_round_numbers_and_units() -> None:
    said = texts(drawn(Plot("age", "hours", [LAG])))
    assert {"0", "1", "2", "3", "4", "seconds", "hours", "deliveries"} <= set(said)


def test_it_tells_what_it_shows_to_those_who_can_not_see_it() -> None:
    picture = drawn(Plot("age of what is due", "s", [LAG], [Span("fault", 1, 2)], Limit("threshold", 3)))
    title, description = picture.find(f"{SVG}title"), picture.find(f"{SVG}desc")
    assert title is not None and description is not None
    assert title.text == "age of what is due"
    assert description.text == (
        "deliveries: at most 4 s, at 1.0 s, and 0 s in the end; fault from 1.0 s to 2.0 s; threshold: 3 s."
    )
    assert picture.attrib["role"] == "img"
    assert picture.attrib["aria-labelledby"].split() == [title.attrib["id"], description.attrib["id"]]


def test_two_plots_of_one_page_have_ids_of_their_own() -> None:
    one, other = (drawn(Plot("age", "s", [LAG])).attrib["aria-labelledby"] for _ in range(2))
    assert not set(one.split()) & set(other.split())


def test_the_time_of_a_fault_is_shaded_where_it_was() -> None:
    picture = drawn(Plot("age", "s", [LAG], [Span("fault", 1, 2)]))
    shade = picture.findall(f"{SVG}rect")[0]
    curve = points(picture)
    assert float(shade.attrib["x"]) == curve[1][0]
    assert round(float(shade.attrib["x"]) + float(shade.attrib["width"]), 1) == curve[2][0]


def test_a_limit_is_a_line_where_it_is_near_and_told_where_it_is_far() -> None:
    def lines(limit: float) -> int:
        return sum("dasharray" in each.attrib["style"] for each in drawn(with_limit(limit)).findall(f"{SVG}line"))

    def with_limit(limit: float) -> Plot:
        return Plot("age", "s", [LAG], limit=Limit("threshold", limit))

    assert (lines(6), lines(600)) == (1, 0)
    assert "threshold: 600 s, far above" in texts(drawn(with_limit(600)))
    lowest = min(y for _, y in points(drawn(with_limit(6))))
    assert lowest > min(y for _, y in points(drawn(with_limit(600)))), "the limit is on the picture, above the curve"


def test_several_series_differ_in_more_than_colour() -> None:
    strokes = [each.attrib["style"] for each in drawn(Plot("age", "s", [LAG] * 4)).findall(f"{SVG}polyline")]
    assert len(set(strokes)) == 4
    assert len({each.partition("dasharray:")[2] for each in strokes}) == 4


def test_names_that_look_like_markup_are_text() -> None:
    name = "<script>alert('&')</script>"
    plot = Plot(name, name, [Series(name, [(0, 1)])], [Span(name, 0, 1)], Limit(name, 1))
    assert "<script" not in svg(plot)
    picture = drawn(plot)
    assert not list(picture.iter(f"{SVG}script"))
    assert name in texts(picture)


def test_nothing_and_a_single_moment_can_be_drawn() -> None:
    for series in ([], [Series("deliveries", [])], [Series("deliveries", [(3, 0)])]):
        assert drawn(Plot("age", "s", series)).tag == f"{SVG}svg"


def test_ticks_are_round_and_few() -> None:
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0, 0.07, 4) == [0, 0.02, 0.04, 0.06]
    assert ticks(3, 3) == [3]
    for high in (0.013, 0.9, 7, 64, 1234, 1e6):
        assert 2 <= len(ticks(0, high)) <= 7


def test_of_many_points_few_are_drawn_and_no_peak_is_lost() -> None:
    many = [(float(at), 9.0 if at == 31_337 else at % 3 / 10) for at in range(100_000)]
    few = thinned(many)
    assert len(few) <= MOST_POINTS
    assert max(value for _, value in few) == 9.0
    assert [at for at, _ in few] == sorted(at for at, _ in few)
    assert thinned(many[:10]) == many[:10]
