"""Runs ways and kinds (tests/victims/cuda) under libckpt.so, and compares what `ckpt show` says of them at each step.

    check_programs.py FOLDER DRIVER    FOLDER has libckpt.so, ckpt and the programs; DRIVER is libcuda.so.1

Prints a line for each program; exits 1 if one is not as it should be.
"""

import json
import os
import signal
import subprocess
import sys

MIB = 1 << 20
# Kind and bytes; of the pitched allocation, bytes of a row that the driver chooses, times 300.
PITCHED = ("device 0", "rows")
WAYS = {
    "allocated": [
        ("device 0", 10_000_000),
        ("device 0", 100),
        PITCHED,
        ("managed", 3_000_000),
        ("pinned", 200_000),
        ("pinned", 300_000),
        ("registered", 40_960),
        ("device 0", 500_000),
        ("device 0", 600_000),
        ("managed", 700_000),
        ("physical 0", 4 * MIB),
        ("mapped 0", 4 * MIB),
        ("array", 64 * 32 * 4),
        ("global 0", 4096),
    ],
    "freed": [],
    "one more": [("device 0", MIB)],
    "no context": [],
}
KINDS = {
    "allocated": [
        ("imported 0", 3 * MIB),
        ("array", 32 * 16 * 8 * 4),
        ("array", (32 * 16 * 8 + 16 * 8 * 4) * 4),
        ("global 0", 4096),
        ("managed global", 2048),
        ("graph 0", 5 * MIB),
        ("graph 0", 8 * MIB),
    ],
    "freed": [],
    "two contexts": [("device 0", 7 * MIB), ("device 0", 6 * MIB)],
    "one context": [("device 0", 7 * MIB)],
    "no context": [],
}


def shown(folder, pid):
    answer = subprocess.run([f"{folder}/ckpt", "show", str(pid), "--json"], capture_output=True, check=True, timeout=30)
    view = json.loads(answer.stdout)
    assert view["unrecorded"] == 0 and view["unknown_entry_points"] == 0, view
    return sorted((one["kind"], one["bytes"]) for one in view["allocations"] if one["kind"] != "host")


def differs(found, expected):
    """Kind and bytes that are found and not expected, and the other way round."""
    missing = list(expected)
    besides = []
    for one in found:
        if one in missing:
            missing.remove(one)
        elif PITCHED in missing and one[0] == PITCHED[0] and one[1] % 300 == 0 and one[1] >= 300_000:
            missing.remove(PITCHED)
        else:
            besides.append(one)
    return missing, besides


def check(folder, name, arguments, steps):
    environment = dict(os.environ, LD_PRELOAD=f"{folder}/libckpt.so", CKPT_DIR=f"{folder}/store")
    process = subprocess.Popen([f"{folder}/{name}", *arguments], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        for line, expected in steps.items():
            read = process.stdout.readline().strip()
            if read != line:
                return f"said {read!r} in place of {line!r}"
            missing, besides = differs(shown(folder, process.pid), expected)
            if missing or besides:
                return f"at {line!r} missing {missing}, besides {besides}"
            process.send_signal(signal.SIGUSR2)
        last = process.stdout.readline().strip()
        return None if last == "done" and process.wait(30) == 0 else f"ended with {last!r}"
    finally:
        process.kill()
        process.wait()


def main():
    folder, driver = sys.argv[1:]
    # A real driver has no versions, which "dlvsym" would look for.
    programs = [("ways", [way, driver], WAYS) for way in ("linked", "dlsym", "default", "first", "second", "per thread")]
    programs.append(("kinds", [], KINDS))
    wrong = 0
    for name, arguments, steps in programs:
        why = check(folder, name, arguments, steps)
        wrong += why is not None
        print(f"{name} {' '.join(arguments[:1])}: {why or 'as it should be'}", flush=True)
    sys.exit(1 if wrong else 0)


main()
