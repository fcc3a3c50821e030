"""What the profiler's file says of launches, and what bounds a kernel."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "regress"))

import gpu_profile  # noqa: E402
import gpu_report  # noqa: E402

FILE = '''==PROF== Connected to process 7 (/usr/lib/pystachio-engine)
"ID","Process ID","Process Name","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum",\
"sm__warps_active.avg.pct_of_peak_sustained_active","smsp__issue_active.avg.pct_of_peak_sustained_active"
"","","","","byte","byte","us","%","%"
"0","7","pystachio-engine","test_segments(TestSegments)","1,200","800","12.5","40.5","61"
==PROF== Disconnected
"1","7","pystachio-engine","probe_hash_table(Probe)","10","0","2","n/a",""
'''


class Launches(unittest.TestCase):
    def parse(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "ncu.csv"
            path.write_text(text, encoding="utf-8")
            return gpu_profile._launches(path)

    def test_every_launch_has_its_numbers(self):
        first, second = self.parse(FILE)
        self.assertEqual(first, ("test_segments", 12500.0, 2000.0, 61.0, 40.5))
        self.assertEqual(second, ("probe_hash_table", 2000.0, 10.0, 0.0, 0.0))

    def test_a_file_without_launches_has_none(self):
        self.assertEqual(self.parse("==PROF== Connected\n"), [])


class Bounds(unittest.TestCase):
    def test_what_takes_more_than_half_bounds_a_kernel(self):
        self.assertEqual(gpu_report.bound_of(0.8, 0.6), "memory")
        self.assertEqual(gpu_report.bound_of(0.5, 0.7), "issue")
        self.assertEqual(gpu_report.bound_of(0.3, 0.49), "waits")


if __name__ == "__main__":
    unittest.main()
