"""Checkpoints, kills and restarts programs of the CUDA runtime, cuBLAS, PyTorch and graphlets, as check_restarts.py does those of the driver.

    check_loops.py FOLDER OUT DRIVER    FOLDER has libckpt.so, ckpt and the programs; DRIVER is libcuda.so.1

Prints a line for each, and for what is skipped why; exits 1 if one has not gone on exactly. First, what the driver lets be done
with managed memory: if it can be evacuated, a program with some is among them; otherwise it is refused by name, and goes on.
"""

import glob
import importlib.util
import json
import os
import subprocess
import sys

import lives
from lives import PAUSE_US, STEPS

# PyTorch needs its time to begin.
lives.LIMIT_S = 150


def folder_of(name):
    """Where a library of CUDA's is, if the loader does not find it by itself."""
    folders = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"]
    folders += [folder for path in sys.path if path for folder in sorted(glob.glob(f"{path}/nvidia/*/lib"))]
    return next((folder for folder in folders if glob.glob(f"{folder}/{name}*")), None)


def can_be_evacuated(folder, driver):
    words = [f"{folder}/ckpt", "devices", "--driver", driver, "--managed"]
    tried = subprocess.run(words, capture_output=True, text=True, timeout=lives.LIMIT_S)
    print(f"managed memory can be evacuated: {tried.stdout.strip() or tried.stderr.strip()}")
    found = json.loads(tried.stdout)
    return found["leaves"] and found["can_be_registered"]


def is_refused(folder, out):
    environment = dict(os.environ, LD_PRELOAD=f"{folder}/libckpt.so", CKPT_DIR=f"{out}/managed.store")
    words = [f"{folder}/loops", "heat", "100", PAUSE_US]
    printed = f"{out}/managed.printed"
    with open(printed, "w") as stdout:
        program = subprocess.Popen(words, stdout=stdout, stdin=subprocess.DEVNULL, env=environment)
    try:
        lives.wait_for_lines(printed, 10)
        words = [f"{folder}/ckpt", "checkpoint", str(program.pid)]
        answer = subprocess.run(words, capture_output=True, text=True, timeout=lives.LIMIT_S)
        is_named = answer.returncode != 0 and "managed memory (cuMemAllocManaged)" in answer.stderr
        if not is_named or program.wait(lives.LIMIT_S) != 0:
            raise lives.Wrong(f"{answer.stderr.strip()}; the program: {program.poll()}")
    finally:
        if program.poll() is None:
            program.kill()
            program.wait()


def main():
    folder, out, driver = sys.argv[1:]
    is_evacuated = can_be_evacuated(folder, driver)
    loop = lambda kind, name="loops": [f"{folder}/{name}", kind, STEPS, PAUSE_US]
    count = ["count", "--family", "delaunay", "--vertices", "300000", "--driver", driver, "--checkpoints", STEPS]
    programs = [
        (loop("counter"), {}, "static runtime"),
        (loop("counter"), {"CKPT_DEVICE_BACKING": "native"}, "static runtime"),
        (loop("replayed"), {}, "a graph with memory of its own"),
        (loop("pipelined"), {}, "four streams, pinned memory, calls on the host"),
        (loop("heat"), {"CKPT_MANAGED_BACKING": "pinned"}, "managed memory"),
        *([(loop("heat"), {}, "managed memory, evacuated")] if is_evacuated else []),
        ([f"{folder}/graphlets", *count], {}, "graphlets"),
    ]
    runtime, blas = folder_of("libcudart.so.13"), folder_of("libcublas.so.1")
    if os.path.exists(f"{folder}/loops_shared") and runtime:
        programs.append((loop("counter", "loops_shared"), {"LD_LIBRARY_PATH": runtime}, "shared runtime"))
    else:
        print("shared runtime: skipped, no libcudart.so.13")
    if blas:
        programs.append((loop("blas"), {"LD_LIBRARY_PATH": blas}, "cuBLAS"))
    else:
        print("cuBLAS: skipped, no libcublas.so")
    if importlib.util.find_spec("torch"):
        programs.append(([sys.executable, f"{folder}/transformer.py", STEPS, PAUSE_US], {}, "PyTorch, a transformer"))
    else:
        print("PyTorch: skipped, it is not installed")
    all_right = lives.check_all(folder, out, programs)
    try:
        if not is_evacuated:
            is_refused(folder, out)
            print("managed memory of the driver's is refused by name, and its program goes on")
    except (lives.Wrong, subprocess.TimeoutExpired) as error:
        print(f"managed memory of the driver's: FAILED: {error}")
        all_right = False
    sys.exit(not all_right)


main()
