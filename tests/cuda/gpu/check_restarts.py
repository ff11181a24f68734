"""Checkpoints, kills and restarts counted and interleaved (tests/victims/cuda), twice in a row, and compares each life with an uninterrupted run.

    check_restarts.py FOLDER OUT    FOLDER has libckpt.so, ckpt, both of them and words.ptx; stores and output go to OUT

Prints a line for each kind of state, with how long its devices were away; exits 1 if one has not gone on exactly.
"""

import sys

from lives import PAUSE_US, STEPS, check_all

# Device memory that libckpt.so backs, that the driver has allocated, pools and mapped memory, arrays; streams and events in all.
KINDS = [
    (["plain", "small", "pitched"], {}),
    (["plain", "small", "pitched"], {"CKPT_DEVICE_BACKING": "native"}),
    (["pooled", "mapped", "array", "fleeting"], {}),
    (["pinned", "registered"], {}),
    (["graph", "created"], {}),
    (["threads", "plain"], {}),
    (["large", "small"], {}),
    (["managed", "touched"], {"CKPT_MANAGED_BACKING": "pinned"}),
    # Evacuated, or refused by name if the driver does not let it be (`ckpt devices --managed` says why).
    (["managed", "touched", "churned"], {}),
]
# Random calls of several threads, by the seeds that decide them.
SEEDS = range(1, 5)


def main():
    folder, out = sys.argv[1:]
    kernels = f"{folder}/words.ptx"
    programs = [([f"{folder}/counted", STEPS, PAUSE_US, kernels, *kinds], more, " ".join(kinds)) for kinds, more in KINDS]
    programs += [([f"{folder}/interleaved", STEPS, str(seed), kernels], {}, f"random calls, seed {seed}") for seed in SEEDS]
    sys.exit(not check_all(folder, out, programs))


main()
