"""Runs pieces of scripts/*.sh with folders of a test's own."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(script, cache, **variables):
    """Runs a script of bash after scripts/environment.sh, with a cache folder of its own; gives its status and all its output."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CARGO_TARGET_DIR", "PYSTACHIO_CUDA", "PYSTACHIO_NVCC")}
    environment |= {"PYSTACHIO_CACHE": str(cache)} | variables
    done = subprocess.run(["bash", "-c", f'source "{ROOT}/scripts/environment.sh"\n{script}'], env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout
