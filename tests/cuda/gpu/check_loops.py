"""Checkpoints, kills and restarts programs of the CUDA runtime, cuBLAS, PyTorch and graphlets, as check_restarts.py does those of the driver.

    check_loops.py FOLDER OUT SCRATCH DRIVER SECONDS

FOLDER has libckpt.so, ckpt and the programs; output goes to OUT, stores to SCRATCH; DRIVER is libcuda.so.1. Prints a line for each,
and for what is skipped why; exits 1 if one has not gone on exactly, or was not run for want of time. First, what the driver lets
be done with managed memory: if it can be evacuated, a program with some is among them; otherwise it is refused by name, and goes on.
"""

import glob
import importlib.util
import os
import sys

import lives
from lives import PAUSE_US, STEPS, Clock, Program

# PyTorch needs its time to begin, and has some GiB of memory.
TORCH_S = 160


def folder_of(name, *folders):
    """Where a library of CUDA's is."""
    folders = [*folders, "/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"]
    folders += [folder for path in sys.path if path for folder in sorted(glob.glob(f"{path}/nvidia/*/lib"))]
    return next((folder for folder in folders if glob.glob(f"{folder}/{name}*")), None)


def graphlets(folder, driver):
    """It has no guard: its pauses alone make it last for half a minute. It says how long it has taken, which is not compared."""
    count = [f"{folder}/graphlets", "count", "--family", "delaunay", "--vertices", "300000", "--driver", driver, "--checkpoints", "100"]
    return Program("graphlets", [*count, "--pause-ms", "300"], None, count, r" after [0-9.]+ s", guarded=False)


def torch_program(folder, what, workers):
    words = lambda pause_us: [sys.executable, f"{folder}/transformer.py", str(STEPS), str(pause_us), str(workers)]
    return Program(what, words(PAUSE_US), None, words(0), program_s=TORCH_S)


def main():
    folder, out, scratch, driver, seconds = sys.argv[1:]
    clock = Clock(float(seconds))
    is_evacuated = lives.can_be_evacuated(folder, driver, clock)
    words = lambda kind, name, pause_us: [f"{folder}/{name}", kind, str(STEPS), str(pause_us)]

    def loop(what, kind, more=None, name="loops"):
        return Program(what, words(kind, name, PAUSE_US), more, words(kind, name, 0))

    programs = [
        loop("static runtime", "counter"),
        loop("static runtime", "counter", {"CKPT_DEVICE_BACKING": "native"}),
        loop("a graph with memory of its own", "replayed"),
        loop("four streams, pinned memory, calls on the host", "pipelined"),
        loop("managed memory", "heat", {"CKPT_MANAGED_BACKING": "pinned"}),
        *([loop("managed memory, evacuated", "heat")] if is_evacuated else []),
        graphlets(folder, driver),
    ]
    runtime, blas = folder_of("libcudart.so.13", folder), folder_of("libcublas.so.1")
    if os.path.exists(f"{folder}/loops_shared") and runtime:
        programs.append(loop("shared runtime", "counter", {"LD_LIBRARY_PATH": runtime}, "loops_shared"))
    else:
        print("shared runtime: skipped, no libcudart.so.13", flush=True)
    if blas:
        # Or its products may differ in their last bits.
        programs.append(loop("cuBLAS", "blas", {"LD_LIBRARY_PATH": blas, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}))
    else:
        print("cuBLAS: skipped, no libcublas.so", flush=True)
    if importlib.util.find_spec("torch"):
        # Not last: if others take all their time, there is some for it.
        loaded = torch_program(folder, "PyTorch, a transformer and four processes of a DataLoader", 4)
        programs[1:1] = [torch_program(folder, "PyTorch, a transformer", 0), loaded]
    else:
        print("PyTorch: skipped, it is not installed", flush=True)
    all_right = lives.check_all(folder, out, scratch, programs, clock)
    if not is_evacuated:
        few = Clock(min(lives.PROGRAM_S, clock.left()))
        all_right &= lives.refused_by_name(folder, out, scratch, loop("managed memory of the driver's", "heat"), few)
    sys.exit(not all_right)


main()
