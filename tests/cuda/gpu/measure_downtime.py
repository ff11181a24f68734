"""Measures how long a program is without its devices for a checkpoint, with much memory there of which a part has changed.

    measure_downtime.py FOLDER OUT [MIB [PER_MILLE]]    FOLDER has libckpt.so, ckpt, vast and words.ptx; stores go to OUT

The same program twice: its memory mapped by libckpt.so, and allocated by the driver, which moves all of it to the host and back
(CKPT_DEVICE_BACKING=native). Each is checkpointed six times, with a step between; the first checkpoint stores everything and is
named apart. Then it is killed and restarted, and must go on as an uninterrupted run. Prints a line for each, and the ratio of the
medians; exits 1 if one has not gone on exactly. It needs root.
"""

import json
import os
import statistics
import subprocess
import sys
import time

MIB, PER_MILLE = "8192", "10"
CHECKPOINTS = 6
LIMIT_S = 120


class Wrong(Exception):
    pass


class Life:
    """A process that takes a step for each line that it gets."""

    def __init__(self, words, environment, printed):
        self.printed = printed
        end, self.pipe = os.pipe()
        with open(printed, "a") as stdout:
            self.process = subprocess.Popen(words, stdin=end, stdout=stdout, env=environment)
        os.close(end)

    def wait_for_lines(self, count):
        end = time.monotonic() + LIMIT_S
        while open(self.printed).read().count("\n") < count:
            if time.monotonic() > end or self.process.poll() is not None:
                raise Wrong(f"not {count} lines in {self.printed}")
            time.sleep(0.005)

    def step(self, number):
        os.write(self.pipe, b"\n")
        self.wait_for_lines(1 + number)

    def end(self):
        os.close(self.pipe)
        return self.process.wait(LIMIT_S)


def uninterrupted(words, out):
    life = Life(words, dict(os.environ), f"{out}/vast.reference")
    life.wait_for_lines(1)
    for step in range(1, CHECKPOINTS + 2):
        life.step(step)
    life.end()
    return open(f"{out}/vast.reference").read()


def measured(folder, out, name, words, more, reference):
    store, printed = f"{out}/vast-{name}.store", f"{out}/vast-{name}.printed"
    environment = dict(os.environ, LD_PRELOAD=f"{folder}/libckpt.so", CKPT_DIR=store, **more)
    life = Life(words, environment, printed)
    try:
        life.wait_for_lines(1)
        for step in range(1, CHECKPOINTS + 1):
            life.step(step)
            call = [f"{folder}/ckpt", "checkpoint", str(life.process.pid)]
            taken = subprocess.run(call, capture_output=True, text=True, timeout=LIMIT_S)
            if taken.returncode != 0:
                raise Wrong(taken.stderr.strip())
        life.process.kill()
        life.process.wait(LIMIT_S)
        # The pipe that the first life read from is gone: the next one has its own.
        begun = time.monotonic()
        life = Life([f"{folder}/ckpt", "restart", store, "--stdio", "inherit"], dict(os.environ), printed)
        life.wait_for_lines(1 + CHECKPOINTS)
        life.step(CHECKPOINTS + 1)
        restart_s = time.monotonic() - begun
        if life.end() != 0 or open(printed).read() != reference:
            raise Wrong(f"{printed} differs from {out}/vast.reference")
    finally:
        if life.process.poll() is None:
            life.process.kill()
            life.process.wait()
    listed = subprocess.run([f"{folder}/ckpt", "list", "--json", store], capture_output=True, text=True, timeout=LIMIT_S)
    rows = json.loads(listed.stdout)
    first, later = rows[0], rows[1:]
    median = statistics.median(row["stop_ms"] for row in later)
    print(
        f"{name:8} devices away for {median:8.0f} ms (first {first['stop_ms']:.0f}, most {max(row['stop_ms'] for row in later):.0f});"
        f" new in the store {statistics.median(row['new_bytes'] for row in later) / 2**20:.0f} MiB"
        f" (first {first['new_bytes'] / 2**20:.0f}); restart and one step {restart_s:.1f} s",
        flush=True,
    )
    return median


def main():
    folder, out, mib, per_mille = (sys.argv[1:] + [MIB, PER_MILLE][len(sys.argv) - 3 :])[:4]
    words = [f"{folder}/vast", mib, per_mille, f"{folder}/words.ptx"]
    print(f"{mib} MiB of device memory, {int(per_mille) / 10:g} % changed between two checkpoints", flush=True)
    try:
        reference = uninterrupted(words, out)
        mapped = measured(folder, out, "mapped", words, {}, reference)
        native = measured(folder, out, "native", words, {"CKPT_DEVICE_BACKING": "native"}, reference)
        print(f"ratio    {native / mapped:.1f}", flush=True)
    except (Wrong, subprocess.TimeoutExpired) as error:
        print(f"FAILED: {error}", flush=True)
        sys.exit(1)


main()
