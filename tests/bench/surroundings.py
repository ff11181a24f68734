"""What scripts/bench tells a section: where the product and a place for files are, and how much is to be measured."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = Path(os.environ.get("CKPT_BENCH_WORK", "/nowhere"))
PRODUCT = Path(os.environ.get("CKPT_BENCH_PRODUCT", "/nowhere"))
IS_QUICK = os.environ.get("CKPT_BENCH_QUICK") == "yes"
GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10

if not WORK.is_dir() or not PRODUCT.is_dir():
    sys.exit(f"{sys.argv[0]}: a section is run by scripts/bench, which builds and finds what it needs")


def is_wanted(name):
    """Whether CKPT_BENCH_ONLY, a part of a name, leaves this in."""
    return os.environ.get("CKPT_BENCH_ONLY", "") in name


def available_bytes():
    """Memory that could be had without swapping."""
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * KIB
    raise RuntimeError("/proc/meminfo has no MemAvailable")


def room_bytes():
    """What the disk with the work directory has left."""
    status = os.statvfs(WORK)
    return status.f_bavail * status.f_frsize
