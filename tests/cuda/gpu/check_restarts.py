"""Checkpoints, kills and restarts counted, loaders and interleaved (tests/victims/cuda), twice in a row, and compares each with an uninterrupted run.

    check_restarts.py FOLDER OUT SCRATCH DRIVER SECONDS

FOLDER has libckpt.so, ckpt, the programs and words.ptx; output goes to OUT, stores to SCRATCH. Prints a line for each kind of
state, with how long its devices were away; exits 1 if one has not gone on exactly, or was not run for want of time.
"""

import sys

import lives
from lives import PAUSE_US, STEPS, Clock, Program

# Device memory that libckpt.so backs, that the driver has allocated, pools and mapped memory, arrays; streams and events in all.
KINDS = [
    (["plain", "small", "pitched"], {}),
    (["plain", "small", "pitched"], {"CKPT_DEVICE_BACKING": "native"}),
    (["pooled", "mapped", "array", "fleeting"], {}),
    (["idle", "plain"], {}),
    (["pinned", "registered"], {}),
    (["graph", "created"], {}),
    (["threads", "plain"], {}),
    (["large", "small"], {}),
    (["managed", "touched"], {"CKPT_MANAGED_BACKING": "pinned"}),
]
EVACUATED = ["managed", "touched", "churned"]
# Random calls of several threads, by the seeds that decide them.
SEEDS = range(1, 5)


def main():
    folder, out, scratch, driver, seconds = sys.argv[1:]
    clock = Clock(float(seconds))
    kernels = f"{folder}/words.ptx"
    words = lambda kinds, pause_us: [f"{folder}/counted", str(STEPS), str(pause_us), kernels, *kinds]
    counted = lambda kinds, more=None: Program(" ".join(kinds), words(kinds, PAUSE_US), more, words(kinds, 0))
    is_evacuated = lives.can_be_evacuated(folder, driver, clock)
    programs = [counted(kinds, more) for kinds, more in KINDS]
    programs += [counted(EVACUATED)] if is_evacuated else []
    loaders = lambda pause_us: [f"{folder}/loaders", str(STEPS), str(pause_us)]
    programs.append(Program("children forked behind a context", loaders(PAUSE_US), None, loaders(0)))
    programs += [Program(f"random calls, seed {seed}", [f"{folder}/interleaved", str(STEPS), str(seed), kernels]) for seed in SEEDS]
    all_right = lives.check_all(folder, out, scratch, programs, clock)
    if not is_evacuated:
        few = Clock(min(lives.PROGRAM_S, clock.left()))
        all_right &= lives.refused_by_name(folder, out, scratch, counted(EVACUATED[:1]), few)
    sys.exit(not all_right)


main()
