#!/usr/bin/env python3
"""Tests of what ranks.py makes of plans and timelines, of its report and its drawing, without a server."""

import json
import pathlib
import re
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "regress"))

import bandwidth_chart
import gpu
import ranks_report
import ranks_techniques
import ranks_timeline
import ranks_traffic
from harness.libpq import QueryError

PLAN = [{"Plan": {"Node Type": "Aggregate", "Plans": [{
    "Node Type": "Foreign Scan", "Ran On": "cuda", "Ranks": "all 2", "Bytes Read": 100, "Spilled Bytes": 7,
    "Rank Plan": ["Gather 2  (rows=1): few rows", "  Shuffle 0 by a  (rows=5): by key", "    Scan t  (rows=5)"],
    "Exchanges": ["Gather 2: rows=2 bytes=64 skew=2.00", "  rank 0: sent rows=1 bytes=32, received rows=2 bytes=64, waited to send 0 ms",
                  "Shuffle 0 by a, shuffled: rows=50 kept=30 heavy=20 bytes=4096 skew=1.25"]}]}}]


class Traffic(unittest.TestCase):
    def test_a_plan_says_what_it_read_and_moved(self):
        found = ranks_traffic.explained(PLAN)
        self.assertEqual((found["bytes_read"], found["spilled_bytes"], found["moved_rows"], found["moved_bytes"], found["skew"]),
                         (100, 7, 52, 4160, 2.0))
        self.assertEqual(found["exchanges"], ["Gather 2  (rows=1): few rows", "Shuffle 0 by a  (rows=5): by key"])
        self.assertEqual(found["ranks"], ["all 2"])

    def test_the_rank_that_sends_most_counts_and_moments_count_once(self):
        rows = [(0, "send", 1.0, 2.0, 300), (0, "receive", 2.0, 2.0, 800), (0, "kernel", 0.0, 50.0, 10**9),
                (1, "send", 0.0, 1.0, 400), (1, "send", 0.5, 1.0, 400)]
        found = ranks_traffic.network(rows)
        self.assertEqual((found["sent_bytes"], found["network_ms"], found["window_ms"]), (800, 1.5, 1.5))
        self.assertAlmostEqual(found["network_gb_s"], 800 / 1.5 / 1e6)

    def test_a_pause_between_sends_counts_for_the_rate_and_a_late_message_does_not(self):
        rows = [(0, "send", 10.0, 1.0, 5000), (0, "send", 13.0, 1.0, 5000), (0, "send", 90.0, 1.0, 10), (0, "receive", 2.0, 1.0, 7)]
        found = ranks_traffic.network(rows)
        self.assertEqual((found["sent_bytes"], found["network_ms"], found["window_ms"]), (10010, 4.0, 4.0))
        self.assertAlmostEqual(found["network_gb_s"], 10010 / 4.0 / 1e6)

    def test_a_rank_that_only_receives_has_no_rate(self):
        found = ranks_traffic.network([(0, "receive", 2.0, 1.0, 7)])
        self.assertEqual((found["sent_bytes"], found["network_gb_s"]), (0, None))

    def test_one_rank_sends_nothing(self):
        self.assertEqual(ranks_traffic.network([(0, "kernel", 0.0, 1.0, 5)]), {"sent_bytes": 0, "network_ms": 0.0, "window_ms": 0.0, "network_gb_s": None})


    def test_the_best_of_raw_transfers_over_the_same_links_counts(self):
        results = [{"kind": "raw", "links": "p2p", "gb_s": 100.0}, {"kind": "raw", "links": "p2p", "gb_s": 300.0},
                   {"kind": "raw", "links": "host", "gb_s": 20.0}, {"kind": "rows", "links": "host", "gb_s": 90.0}]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "shuffle.json")
            file.write_text(json.dumps({"results": results}), encoding="utf-8")
            rates = [ranks_traffic.raw_gb_s(path, links) for path, links in
                     ((file, "p2p"), (file, "host"), (file, "other"), ("", "p2p"), (file.with_suffix(".no"), "p2p"))]
        self.assertEqual(rates, [300.0, 20.0, None, None, None])


class Bandwidths(unittest.TestCase):
    def test_bytes_are_neither_lost_nor_counted_twice(self):
        rows = [(0, "read", 0.0, 10.0, 1000), (1, "read", 5.0, 0.0, 500), (1, "send", 3.3, 4.4, 700), (0, "send", 9.9, 0.5, 30),
                (0, "receive", 3.3, 4.4, 700)]
        series = ranks_timeline.bandwidths([(*row[:4], row[4] * 1_000_000) for row in rows], 10.0)
        self.assertEqual(list(series), ["storage, all ranks", "network, sent by rank 0", "network, sent by rank 1"])
        width_s = 10.0 / ranks_timeline.BINS / 1e3
        moved = {name: sum(values) * width_s * 1e3 for name, values in series.items()}
        for name, megabytes in (("storage, all ranks", 1500), ("network, sent by rank 1", 700), ("network, sent by rank 0", 30)):
            self.assertAlmostEqual(moved[name], megabytes, delta=megabytes * 0.01, msg=name)

    def test_the_least_time_is_that_of_the_slower_of_storage_and_network(self):
        found = {"read_bytes": 10**9, "sent_bytes": 10**8}
        self.assertAlmostEqual(ranks_timeline.t_min_ms(found, 10e9, 2e9), 100.0)
        self.assertAlmostEqual(ranks_timeline.t_min_ms(found, 10e9, 0.5e9), 200.0)
        self.assertAlmostEqual(ranks_timeline.t_min_ms(found, None, 1e9), 100.0)
        self.assertIsNone(ranks_timeline.t_min_ms(found, None, None))

    def test_a_series_is_zero_where_nothing_moves(self):
        series = ranks_timeline.bandwidths([(1, "send", 5.0, 1.0, 10**9)], 10.0)["network, sent by rank 1"]
        half = ranks_timeline.BINS // 2
        self.assertEqual(set(series[:half]), {0.0})
        self.assertGreater(series[half], 0.0)


def bandwidth(elapsed_ms):
    rows = [(rank, activity, 1.0, elapsed_ms / 2, 10**8) for rank in range(2) for activity in ("read", "send")]
    return {"query": "q03", "cold": False, "elapsed_ms": elapsed_ms, "t_min_ms": elapsed_ms / 4, "read_bytes": 2 * 10**8, **ranks_traffic.network(rows),
            "series": ranks_timeline.bandwidths(rows, elapsed_ms)}


class Drawing(unittest.TestCase):
    def test_all_that_is_drawn_is_within_the_picture(self):
        bandwidths = {name: bandwidth(20.0 + 7 * place) for place, name in enumerate(ranks_techniques.TECHNIQUES)}
        picture = xml.etree.ElementTree.fromstring(bandwidth_chart.svg(bandwidths))
        width, height = float(picture.get("width")), float(picture.get("height"))
        texts = []
        for element in picture.iter():
            kind = element.tag.rsplit("}", 1)[1]
            if kind == "text":
                x, y, reach = float(element.get("x")), float(element.get("y")), 6.8 * len(element.text)
                if element.get("transform"):
                    left, right, top, bottom = x - 12, x + 4, y - reach / 2, y + reach / 2
                else:
                    before = {"middle": reach / 2, "end": reach, None: 0.0}[element.get("text-anchor")]
                    left, right, top, bottom = x - before, x - before + reach, y - 10, y + 3
                self.assertTrue(left >= 0 and right <= width and top >= 0 and bottom <= height, element.text)
                texts.append(element.text)
            elif kind == "polyline":
                for point in element.get("points").split():
                    x, y = map(float, point.split(","))
                    self.assertTrue(0 <= x <= width and 0 <= y <= height)
        for wanted in ("milliseconds since the query's start", "bandwidth, GB/s", "storage, all ranks", "network, sent by rank 1"):
            self.assertIn(wanted, texts)
        self.assertEqual(len([text for text in texts if text == "milliseconds since the query's start"]), len(bandwidths))

    def test_nothing_measured_is_drawn_too(self):
        empty = {"elapsed_ms": 0.0, "series": ranks_timeline.bandwidths([], 0.0)}
        xml.etree.ElementTree.fromstring(bandwidth_chart.svg({"all on": empty}))


def hot(query, configuration, seconds, **more):
    return {"mode": "hot", "system": configuration, "query": query, "without": None, "seconds": seconds, "difference": None,
            "bytes_read": 10**9, "moved_rows": 5 * 10**6, "sent_bytes": 3 * 10**8, "network_gb_s": 12.5, **more}


def document(measured, **sections):
    facts = {"date": "2026-01-02", "ranks": 2, "device": "cuda", "gpu": "a GPU", "threads": 8, "processor": "a processor", "memory_gib": 64,
             "versions": {"pystachio": "0.1.0"}, "built": "commit=abc", "runs": 4}
    return {"scale": "100", "facts": facts, "measured": measured, **sections}


class Report(unittest.TestCase):
    def test_totals_are_of_queries_that_both_have(self):
        page = ranks_report.markdown(document([
            hot("q01", "one", 0.2), hot("q01", "all", 0.1), hot("q01", "fastest", 0.1),
            hot("q02", "one", 0.1), hot("q02", "all", None, error="timeout"), hot("q02", "fastest", 0.05),
            hot("q03", "all", 0.3)]))
        self.assertIn("| total of 1 | 300.0 | 100.0 | 150.0 | 2.00 | 2.00 |", page)
        self.assertIn("| q02 | 100.0 | error | 50.0 |", page)

    def test_what_is_slower_and_what_differs_is_named(self):
        page = ranks_report.markdown(document([
            hot("q01", "one", 0.1), hot("q01", "all", 0.1), hot("q01", "fastest", 0.12, difference="3 rows against 4, row 1 is the first that differs"),
            hot("q02", "one", 0.1), hot("q02", "all", 0.2), hot("q02", "fastest", 0.1)]))
        self.assertIn("| queries that are slower by more than 5 % | none | q01 | missed |", page)
        self.assertIn("| 3 of 4 | missed |", page)
        self.assertIn("DIFFERS: 3 rows against 4", page)

    def test_what_one_rank_has_not_answered_is_not_compared(self):
        page = ranks_report.markdown(document([hot("q01", "all", 0.1), hot("q02", "one", None, error="timeout"), hot("q02", "all", 0.2)]))
        self.assertNotIn("those of one, to the letter", page)
        self.assertIn("| q01 | - | 100.0 | - | - | - | - |", page)

    def test_every_row_of_a_table_has_as_many_cells_as_its_head(self):
        joined = {"join": "paper_join", "links": "p2p", "configuration": "all", "kind": "full", "columns": 4, "exchanges": ["Gather 2: x", "Shuffle 1 by k: x", "Shuffle 0 by k: x"], "step": "all on", "rows": 10**6,
                  "error": None, "seconds": 0.01, "differs": False, "raw_gb_s": 100.0, "sent_bytes": 10**8, "network_ms": 1.25, "window_ms": 1.25,
                  "network_gb_s": 80.0}
        failed = {**{key: joined[key] for key in ("join", "links", "kind", "columns", "step", "rows")}, "configuration": "one", "error": "timeout"}
        kill = {"SIGKILL of rank 1": {"error": "rank 1 was killed", "queries_before": 3, "error_s": 0.1, "next_s": 0.2, "connected_s": 2.0}}
        fresh = [{**hot("q01", name, 0.5), "mode": mode} for mode in ("warm", "cold") for name in ("one", "all")]
        page = ranks_report.markdown(document(
            [hot("q01", name, 0.1) for name in ("one", "all", "fastest")] + fresh, joins={"a": joined, "b": failed}, kill=kill,
            skew={"split": {"first_s": 0.2, "seconds": 0.1, "sent_bytes": 10**6, "is_same": True}},
            bandwidths={"all on": bandwidth(20.0)}, generated={"paper_join": {"rows": "build 1 x 4", "gb": 1.0, "seconds": 2.0}}))
        self.assertIn("| gather, shuffle, shuffle | 10.0 |", page)
        self.assertIn("| 80% |", page)
        self.assertIn("all ranks connected again after 2.00 s", page)
        cells = None
        tables = 0
        for line in page.splitlines():
            if not line.startswith("|"):
                cells = None
                continue
            count = line.count("|")
            if cells is None:
                tables += 1
                cells = count
            self.assertEqual(count, cells, line)
        self.assertEqual(tables, 7)


class Room(unittest.TestCase):
    def test_data_that_a_disk_has_no_room_for_is_not_begun(self):
        gpu.check_room(HERE, 0.001)
        with self.assertRaisesRegex(OSError, "SF 1e.09 takes .* GB are free"):
            gpu.check_room(HERE, 1e9)


class Techniques(unittest.TestCase):
    def test_names_are_techniques_or_settings_of_the_extension(self):
        steps = {**ranks_techniques.TECHNIQUES, **ranks_techniques.ABLATION}
        for settings in steps.values():
            for name in settings:
                self.assertTrue(re.fullmatch(r"(pystachio\.)?[a-z_]+", name), name)

    def test_what_a_server_has_not_is_named(self):
        class Server:
            def run(self, sql):
                if sql.startswith("SET"):
                    raise QueryError("22023", "invalid value", hint="Name some of: x, z.")
                self.rows = [("pystachio.a",), ("pystachio.b",)]
                return self

        steps = {"all on": {}, "x": {"pystachio.a": "off", "x": "off"}, "y": {"pystachio.a": "off", "x": "off", "y": "off", "z": "off"}}
        there, missing = ranks_techniques.known(Server(), steps)
        self.assertEqual((list(there), missing), (["all on", "x"], {"y": ["y"]}))
        self.assertEqual(ranks_techniques.statements(steps["y"]),
                         ["SET pystachio.gpu_disable = 'x, y, z'", "SET pystachio.a = 'off'"])


if __name__ == "__main__":
    unittest.main()
