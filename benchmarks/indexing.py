"""What `geopatch index` takes on a folder: time, memory, a second run, and whether kills change what it ends with.

python benchmarks/indexing.py FOLDER --window-s 2 [--kills 10]
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from geopatch.gallery import Gallery

COLUMNS = ("embedding", "tokens", "valid", "patch_s", "start_s", "stop_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--window-s", type=float, default=4.0)
    parser.add_argument("--kills", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        whole, killed = Path(scratch, "whole"), Path(scratch, "killed")
        spent = []
        for name in ("first", "second"):
            start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command(arguments, whole), check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            spent.append(time.monotonic() - start)
            print(f"{name} run: {spent[-1]:.1f} s, {cpu_s:.1f} s of CPU, {after.ru_maxrss / 1e3:.0f} MB")
        if arguments.kills:
            kill_and_finish(arguments, killed, spent[0] / 2)
            print(f"after {arguments.kills} kills the same gallery: {same(whole, killed)}")
        shutil.rmtree(scratch, ignore_errors=True)


def command(arguments: argparse.Namespace, place: Path) -> list[str]:
    paths = [str(arguments.folder), "--out", str(place), "--window-s", str(arguments.window_s)]
    return [sys.executable, "-m", "geopatch", "index", *paths]


def kill_and_finish(arguments: argparse.Namespace, place: Path, longest_s: float) -> None:
    """Run again and again, each time killed, every other time only after it began to encode, and then to the end."""
    draw = random.Random(0)
    for number in range(arguments.kills):
        process = subprocess.Popen(command(arguments, place), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        while number % 2 and (line := process.stderr.readline()) and not line.startswith(b"encoding"):
            pass
        try:
            process.communicate(timeout=draw.uniform(1.0, longest_s))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        windows = 0
        if place.exists():
            with Gallery.open(place, read_only=True) as gallery:
                windows = len(gallery)
        print(f"killed with {windows} windows written", flush=True)
    subprocess.run(command(arguments, place), check=True)


def same(first: Path, second: Path) -> bool:
    """Whether two galleries hold the same entries in the same order, and the same documents."""
    with Gallery.open(first, read_only=True) as one, Gallery.open(second, read_only=True) as other:
        if one.about != other.about or len(one) != len(other):
            return False
        for kind in ("record", "file"):
            if one.engine.documents(kind) != other.engine.documents(kind):
                return False
        for left, right in zip(one.scan(1024), other.scan(1024), strict=True):
            if (left.ids, left.records, left.metadata) != (right.ids, right.records, right.metadata):
                return False
            if not all(np.array_equal(getattr(left, name), getattr(right, name)) for name in COLUMNS):
                return False
    return True


if __name__ == "__main__":
    main()
