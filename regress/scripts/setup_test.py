"""What setup.sh fetches, and what install.sh asks before it builds."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from scripts.shell import ROOT, run

# setup.sh's functions, without what it does.
_FUNCTIONS = f'source <(sed "/^check_cargo$/,\\$d; /^source/d" "{ROOT}/scripts/setup.sh")\n'


class Setup(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)

    def test_the_cuda_compiler_is_fetched_where_it_is_asked_for(self):
        for wish, fetched in (("1", True), ("0", False)):
            status, output = run(_FUNCTIONS + "if wants_nvcc; then echo fetched; fi", self.folder, PYSTACHIO_CUDA=wish)
            self.assertEqual((status, "fetched" in output), (0, fetched), output)

    @unittest.skipIf(any(pathlib.Path("/dev").glob("nvidia[0-9]*")), "there is a GPU")
    def test_without_a_gpu_the_cuda_compiler_is_not_fetched(self):
        status, output = run(_FUNCTIONS + "find_nvcc() { return 1; }\ninstall_nvcc", self.folder)
        self.assertEqual(status, 0, output)
        self.assertIn("PYSTACHIO_CUDA=1 fetches", output)
        self.assertFalse((self.folder / "cuda-venv").exists())

    def test_another_wish_is_an_error(self):
        status, output = run(_FUNCTIONS + "wants_nvcc", self.folder, PYSTACHIO_CUDA="yes")
        self.assertEqual(status, 1)
        self.assertIn("PYSTACHIO_CUDA=yes", output)

    @unittest.skipIf(os.getuid() == 0 and not pathlib.Path("/usr/bin/setpriv").exists(), "no way to give up root")
    def test_install_refuses_before_it_builds(self):
        """A server whose folders can't be written to: nothing is built first."""
        server = self.folder / "pg_config"
        (self.folder / "lib").mkdir()
        (self.folder / "share/extension").mkdir(parents=True)
        server.write_text(f"#!/bin/sh\ncase $1 in --pkglibdir) echo {self.folder}/lib ;; --sharedir) echo {self.folder}/share ;; "
                          "--version) echo PostgreSQL 15.1 ;; esac\n")
        server.chmod(0o755)
        os.rmdir(self.folder / "share/extension")
        done = subprocess.run(["bash", str(ROOT / "scripts/install.sh")], env=os.environ | {"PG_CONFIG": str(server)}, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(f"{self.folder}/share/extension is not writable", done.stdout)
        self.assertNotIn("building", done.stdout)


if __name__ == "__main__":
    unittest.main()
