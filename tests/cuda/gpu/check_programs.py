"""Runs ways and kinds (tests/victims/cuda) under libckpt.so, and compares what `ckpt show` says of them at each step.

    check_programs.py FOLDER OUT SCRATCH DRIVER SECONDS

FOLDER has libckpt.so, ckpt and the programs; what they say goes to OUT, a store to SCRATCH; DRIVER is libcuda.so.1. Prints a line
for each program; exits 1 if one is not as it should be, or was not run for want of time.
"""

import json
import os
import signal
import subprocess
import sys
import time

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


def check(folder, scratch, errors, command, steps):
    environment = dict(os.environ, LD_PRELOAD=f"{folder}/libckpt.so", CKPT_DIR=f"{scratch}/store")
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
    )
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


def out_of_time(*_):
    raise TimeoutError("it has taken too long")


def main():
    folder, out, scratch, driver, seconds = sys.argv[1:]
    # A real driver has no versions, which "dlvsym" would look for.
    programs = [("ways", [way, driver], WAYS) for way in ("linked", "dlsym", "default", "first", "second", "per thread")]
    programs.append(("kinds", [], KINDS))
    end = time.monotonic() + float(seconds)
    wrong = 0
    signal.signal(signal.SIGALRM, out_of_time)
    with open(f"{out}/programs.errors", "w") as errors:
        for name, arguments, steps in programs:
            # One that says nothing does not keep the others from their turn.
            signal.alarm(max(1, min(15, int(end - time.monotonic()))))
            try:
                why = check(folder, scratch, errors, [f"{folder}/{name}", *arguments], steps)
            except Exception as error:  # all are tried
                why = f"{type(error).__name__}: {error}"
            signal.alarm(0)
            wrong += why is not None
            print(f"{name} {' '.join(arguments[:1])}: {f'FAILED: {why}' if why else 'as it should be'}", flush=True)
    sys.exit(1 if wrong else 0)


main()
