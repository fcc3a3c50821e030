"""A second `make demo` keeps what a user has made in the demo's database. Needs a cluster: PYSTACHIO_TEST_CLUSTER is its folder."""

import os
import pathlib
import subprocess
import sys
import unittest

from harness.libpq import Session
from scripts.shell import ROOT

_FOLDER = os.environ.get("PYSTACHIO_TEST_CLUSTER")


@unittest.skipUnless(_FOLDER, "PYSTACHIO_TEST_CLUSTER is not set")
class Demo(unittest.TestCase):
    def setUp(self):
        self.conninfo = f"host={_FOLDER} port=5432 user=postgres"
        self.script = pathlib.Path(_FOLDER) / "extension.sql"
        self.script.write_text("first build")

    def demo(self, scale):
        done = subprocess.run([sys.executable, ROOT / "scripts/demo.py", self.conninfo, _FOLDER, scale, self.script], text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_what_a_user_made_stays(self):
        self.demo("0.01")
        with Session(f"{self.conninfo} dbname=tpch") as session:
            session.run("CREATE VIEW parts AS SELECT count(*) AS count FROM tpch.part")
            session.run("CREATE TABLE mine AS SELECT 1 AS a")
            session.run(f"CREATE FOREIGN TABLE tpch.regions (r_name text) SERVER pystachio OPTIONS (path '{_FOLDER}/tpch-sf0.01/region.parquet')")
            self.assertEqual(session.run("SELECT count FROM parts").scalar(), "2000")
        self.demo("0.02")
        self.script.write_text("second build")
        self.assertIn("stays as an earlier build made it", self.demo("0.02"))
        with Session(f"{self.conninfo} dbname=tpch") as session:
            self.assertEqual(session.run("SELECT count FROM parts").scalar(), "4000")
            self.assertEqual(session.run("SELECT count(*) FROM tpch.regions, mine").scalar(), "5")
            session.run("DROP VIEW parts; DROP FOREIGN TABLE tpch.regions")
        self.assertNotIn("stays", self.demo("0.02"))
        self.assertNotIn("stays", self.demo("0.02"))
        with Session(f"{self.conninfo} dbname=tpch") as session:
            self.assertEqual(session.run("SELECT count(*) FROM mine").scalar(), "1")


if __name__ == "__main__":
    unittest.main()
