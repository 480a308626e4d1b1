"""Charts are well-formed SVG files that show the given numbers."""

from xml.etree import ElementTree as ET

from bench.chart import Bars, ChartLine, bars, lines, stack

SVG = "{http://www.w3.org/2000/svg}"


def test_a_line_chart_names_every_line():
    picture = lines("a < b", [ChartLine("one", ((0, 0), (1, 2))), ChartLine("two", ((0, 1), (1, 1)))], x="time", y="%")
    root = ET.fromstring(picture)
    assert [path.find(f"{SVG}title").text for path in root.iter(f"{SVG}path")] == ["one", "two"]
    assert root.get("aria-label") == "a < b"


def test_logarithmic_axes_leave_out_values_that_are_not_above_zero():
    picture = lines("t", [ChartLine("s", ((0, 1), (10, 100), (1000, 1)))], x="", y="", log=True)
    (path,) = ET.fromstring(picture).iter(f"{SVG}path")
    assert path.get("d").count("L") == 1


def test_the_height_of_a_bar_is_proportional_to_its_value():
    picture = bars("t", ["a", "b"], [Bars("g", (10.0, 5.0))], y="pods")
    high, low = (
        float(rect.get("height"))
        for rect in ET.fromstring(picture).iter(f"{SVG}rect")
        if rect.find(f"{SVG}title") is not None
    )
    assert high == 2 * low


def test_few_or_equal_values_still_make_a_chart():
    for points in ((), ((3, 3),), ((0, 0), (1, 0))):
        ET.fromstring(lines("t", [ChartLine("s", points)], x="", y=""))


def test_equal_data_give_equal_files():
    series = [ChartLine("s", ((0, 1 / 3), (1, 2 / 3)))]
    assert lines("t", series, x="", y="") == lines("t", series, x="", y="")


def test_stacked_charts_are_one_picture():
    chart = lines("t", [ChartLine("s", ((0, 1),))], x="", y="")
    assert len(list(ET.fromstring(stack([chart, chart])).iter(f"{SVG}svg"))) == 3
