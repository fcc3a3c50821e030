"""That charts say what they show, and that no label is cut off."""

import json
import pathlib
import unittest
import xml.etree.ElementTree

import bandwidth_chart
import chart_style
import pairs_chart
import report
import timeline_chart

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
_SVG = "{http://www.w3.org/2000/svg}"
# Of letters of the sizes of titles, and of others.
_TITLE_LETTER, _LETTER = 8.2, chart_style.LETTER_WIDTH


def measured(name):
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def drawings():
    """Every kind of chart, by name."""
    peers = list(report.SERIES)
    medians = {f"q{number:02}": {peer: 0.1 * number * (place + 1) for place, peer in enumerate(peers)} for number in range(1, 23)}
    found = {"peers": peers, "medians": medians}
    bins = {"storage, all ranks": [1.0, 2.0], "network, sent by rank 0": [0.5, 0.1]}
    timelines = {"Q1 warm": {"elapsed_ms": 137.2, "lanes": timeline_chart.lanes([("read", 0.0, 50.0, 1), ("kernel", 20.0, 90.0, 1)], 137.2)}}
    return {
        "means": report.means_chart(found), "queries": report.query_chart(found),
        "one peer": report.query_chart({"peers": ["duckdb"], "medians": {"q01": {"duckdb": 0.5}}}),
        "timeline": timeline_chart.svg(timelines),
        "bandwidth": bandwidth_chart.svg({"all on": {"elapsed_ms": 30.0, "series": bins}, "without overlap": {"elapsed_ms": 42.0, "series": bins}}),
        "pairs": pairs_chart.svg(measured("2026-11-22-gpu-cuda-sf100.json")),
        "pairs over DuckDB's files": pairs_chart.svg(measured("2026-11-25-gpu-cuda-sf10-duckdb-files.json")),
    }


def extent(element):
    """From where to where a text goes, about."""
    words = "".join(element.itertext())
    letter = _TITLE_LETTER if element.get("class") == "title" else _LETTER
    x, width = float(element.get("x")), letter * len(words)
    left = {"start": x, "middle": x - width / 2, "end": x - width}[element.get("text-anchor", "start")]
    return left, left + width


class ChartTest(unittest.TestCase):
    def test_no_label_is_cut_off(self):
        for name, drawing in drawings().items():
            root = xml.etree.ElementTree.fromstring(drawing)
            width, height = float(root.get("width")), float(root.get("height"))
            self.assertEqual(root.get("viewBox"), f"0 0 {root.get('width')} {root.get('height')}", name)
            for element in root.iter(f"{_SVG}text"):
                if element.get("transform"):
                    continue
                left, right = extent(element)
                self.assertTrue(0 <= left and right <= width, f"{name}: {''.join(element.itertext())}: {left:.0f} to {right:.0f} of {width:.0f}")
                self.assertTrue(10 <= float(element.get("y")) <= height, f"{name}: {''.join(element.itertext())} at {element.get('y')} of {height}")

    def test_charts_have_titles_units_and_the_better_end(self):
        for name, words in {"means": ["lower is better", "DuckDB"], "queries": ["lower is better", "Seconds", "logarithmic", " s"],
                            "timeline": ["busy", "reads", "copies between host and GPU", "kernels", "milliseconds", "100 %"],
                            "bandwidth": ["GB/s", "milliseconds"], "pairs": ["lower is better", "seconds"]}.items():
            drawing = drawings()[name]
            for word in words:
                self.assertIn(word, drawing, name)

    def test_charts_have_colours_of_light_and_dark_pages_alone(self):
        for name, drawing in drawings().items():
            self.assertIn("prefers-color-scheme: dark", drawing, name)
            for element in xml.etree.ElementTree.fromstring(drawing).iter():
                self.assertNotRegex(element.get("fill") or "", "^#|white|black", name)

    def test_the_timelines_that_were_measured_are_drawn_as_they_are_now(self):
        drawn = (RESULTS / "2026-11-22-gpu-cuda-sf100.svg").read_text(encoding="utf-8")
        self.assertEqual(drawn, timeline_chart.svg(measured("2026-11-22-gpu-cuda-sf100.json")["timelines"]))


if __name__ == "__main__":
    unittest.main()
