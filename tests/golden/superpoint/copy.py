#!/usr/bin/env python3
"""Copies the small reference arrays that tests/models needs from the shared reference data, so that
they run in any clone. Arrays are rewritten in C order, as our own reader wants them.

Usage: tests/golden/superpoint/copy.py [SHARED]   (default: $TAPETUM_SHARED, else ../shared)
"""

import os
import pathlib
import shutil
import sys

import numpy

here = pathlib.Path(__file__).resolve().parent
shared = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("TAPETUM_SHARED", "../shared"))
source = shared / "golden" / "superpoint"

(here / "post").mkdir(exist_ok=True)
for path in sorted((source / "post").glob("*.npy")):
    numpy.save(here / "post" / path.name, numpy.ascontiguousarray(numpy.load(path)))
for name in ("post/expected.json", "synthetic_weights.json"):
    shutil.copyfile(source / name, here / name)
