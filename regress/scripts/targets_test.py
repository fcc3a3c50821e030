"""Build folders of clones: seeded with dependencies, apart, and removed when unused."""

import os
import pathlib
import tempfile
import time
import unittest

from scripts.shell import run

_DAY_S = 86400


class Targets(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.cache = pathlib.Path(self._folder.name)

    def make(self, name, clone=None):
        """A build folder with a crate of others and one of the project's own."""
        target = self.cache / name
        for path in ("release/.fingerprint/serde-1/hash", "release/.fingerprint/pystachio-plan-1/hash", "release/build/ring-1/output",
                     "release/build/pystachio-worker-1/output", "release/build/pystachio-cuda-1/out/x.fatbin", "release/deps/libserde-1.rlib",
                     "release/deps/serde-1.d", "release/deps/libpystachio_plan-1.rlib", "release/incremental/plan/x", "release/.cargo-lock",
                     "pg16/release/deps/libserde-2.rlib", "stage-15/lib/pystachio.so"):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(name)
        if clone:
            (target / "clone").write_text(f"{clone}\n")
        return target

    def prepare(self, **variables):
        """Makes this clone's build folder, and gives it."""
        status, output = run('prepare_target; printf "%s\\n" "$CARGO_TARGET_DIR"', self.cache, **variables)
        self.assertEqual(status, 0, output)
        return pathlib.Path(output.splitlines()[-1])

    def test_a_new_clone_takes_dependencies_and_nothing_of_the_projects_own(self):
        seed = self.make("target")
        own = self.prepare()
        self.assertEqual(own.parent, self.cache)
        found = {str(path.relative_to(own)) for path in own.rglob("*") if path.is_file()}
        self.assertEqual(found, {"clone", "release/.fingerprint/serde-1/hash", "release/build/ring-1/output", "release/build/pystachio-cuda-1/out/x.fatbin",
                                 "release/deps/libserde-1.rlib", "pg16/release/deps/libserde-2.rlib"})
        self.assertTrue((own / "release/deps/libserde-1.rlib").samefile(seed / "release/deps/libserde-1.rlib"))
        self.assertFalse((own / "release/.fingerprint/serde-1/hash").samefile(seed / "release/.fingerprint/serde-1/hash"))
        self.assertFalse((own / "release/build/ring-1/output").samefile(seed / "release/build/ring-1/output"))

    def test_the_folder_that_was_used_last_is_taken(self):
        self.make("target")
        self.make("target-1", clone=self.cache)
        last = self.make("target-2", clone=self.cache)
        os.utime(self.cache / "target-1/clone", (time.time() - _DAY_S,) * 2)
        os.utime(self.cache / "target/release/.fingerprint", (time.time() - 2 * _DAY_S,) * 2)
        self.assertEqual((self.prepare() / "release/deps/libserde-1.rlib").read_text(), last.name)

    def test_what_an_interrupted_run_left_is_not_taken(self):
        left = self.make("target-1.new", clone=self.cache)
        self.make("target")
        os.utime(self.cache / "target/release/.fingerprint", (time.time() - _DAY_S,) * 2)
        self.assertEqual((self.prepare() / "release/deps/libserde-1.rlib").read_text(), "target")
        self.assertFalse(left.exists())

    def test_what_is_there_is_not_taken_again(self):
        self.make("target")
        own = self.prepare()
        (own / "release/deps/libserde-1.rlib").unlink()
        self.prepare()
        self.assertFalse((own / "release/deps/libserde-1.rlib").exists())

    def test_folders_of_clones_that_are_gone_or_idle_are_removed(self):
        gone = self.make("target-1", clone=self.cache / "no such clone")
        idle = self.make("target-2", clone=self.cache)
        used = self.make("target-3", clone=self.cache)
        shared = self.make("target")
        os.utime(idle / "clone", (time.time() - 20 * _DAY_S,) * 2)
        own = self.prepare()
        self.assertEqual([path.exists() for path in (gone, idle, used, shared, own)], [False, False, True, True, True])

    def test_a_folder_that_the_user_names_is_taken_as_it_is(self):
        self.make("target")
        named = self.cache / "mine"
        self.assertEqual(self.prepare(CARGO_TARGET_DIR=str(named)), named)
        self.assertFalse(named.exists())


if __name__ == "__main__":
    unittest.main()
