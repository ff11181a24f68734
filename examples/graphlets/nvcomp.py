#!/usr/bin/env python3
"""Compresses the states of `graphlets study --states FOLDER` on a GPU by nvCOMP, and prints lines for the study's table.

examples/graphlets/nvcomp.py FOLDER [--repeats N] >>study.csv

Needs a GPU and what requirements-nvcomp.txt names: pip install --no-deps -r requirements-nvcomp.txt. A state is on the device
before the clock starts; what is timed is compressing it and the copy to the host, into memory that nvCOMP allocates on the
way: its Python API has no other. The best time of each checkpoint counts. Of every series the checkpoint in the middle and
the last one are decompressed and compared. Not yet run on a GPU.
"""

import argparse
import csv
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

try:
    import numpy
    from nvidia import nvcomp
except ImportError as error:
    sys.exit(f"nvcomp.py: {error}: pip install --no-deps -r {Path(__file__).with_name('requirements-nvcomp.txt')}")

CODECS = {
    "bitcomp": {"algorithm": "Bitcomp", "algorithm_type": 0, "data_type": "<u4"},
    # For values most of which are zeros, which the counters are.
    "bitcomp-sparse": {"algorithm": "Bitcomp", "algorithm_type": 1, "data_type": "<u4"},
    "cascaded": {"algorithm": "Cascaded", "data_type": "<u4"},
}


@dataclass
class Cost:
    original: int
    stored: int
    seconds: float


def series_of(folder):
    """The files of each series, in their order, by what the first columns of its lines say."""
    series = defaultdict(list)
    for index in sorted(folder.glob("*.states.csv")):
        with open(index) as file:
            for line in csv.DictReader(file):
                subject = ",".join(line[name] for name in ["graph", "order", "vertices", "edges"])
                series[subject, int(line["checkpoints"])].append(folder / line["file"])
    return series


def codec_for(options):
    try:
        return nvcomp.Codec(**options)
    except RuntimeError as error:
        sys.exit(f"nvcomp.py: nvCOMP finds no GPU that it can use: {error}")


def compress(codec, path, compare):
    state = numpy.fromfile(path, "<u4")
    on_device = nvcomp.as_array(state).cuda()
    begun = time.perf_counter()
    compressed = codec.encode(on_device)
    on_host = compressed.cpu()
    seconds = time.perf_counter() - begun
    if compare:
        restored = numpy.asarray(codec.decode(compressed, data_type="<u4").cpu())
        if not numpy.array_equal(restored, state):
            sys.exit(f"nvcomp.py: {path} was decompressed, and is not what it was")
    return Cost(state.nbytes, on_host.buffer_size, seconds)


def costs_of(codec, paths, repeats):
    compared = {len(paths) // 2, len(paths) - 1}
    costs = [compress(codec, path, at in compared) for at, path in enumerate(paths)]
    for _ in range(1, repeats):
        for cost, path in zip(costs, paths):
            cost.seconds = min(cost.seconds, compress(codec, path, False).seconds)
    return costs


def total(costs):
    return Cost(*(sum(getattr(cost, name) for cost in costs) for name in ["original", "stored", "seconds"]))


def line(subject, method, costs):
    later, every = total(costs[1:]), total(costs)
    ratio = lambda cost: f"{cost.original / cost.stored:.3f}"
    rate = lambda cost: f"{cost.original / 1e9 / cost.seconds:.3f}"
    # No length of chunks; nvCOMP's own headers are counted as data; its memory is not known.
    return ",".join([subject, "", str(len(costs)), method, str(later.original), str(later.stored), "0", ratio(later),
                     f"{later.seconds:.6f}", rate(later), ratio(every), rate(every), ""])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, metavar="FOLDER")
    arguments.add_argument("--repeats", type=int, default=3, metavar="N")
    arguments = arguments.parse_args()
    series = series_of(arguments.folder)
    if not series:
        sys.exit(f"nvcomp.py: {arguments.folder} has no states: graphlets study --states {arguments.folder} writes them")
    for method, options in CODECS.items():
        codec = codec_for(options)
        for (subject, _), paths in series.items():
            print(line(subject, method, costs_of(codec, paths, arguments.repeats)), flush=True)


main()
