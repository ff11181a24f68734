"""Measures for how long a program is without its devices at a checkpoint, with much memory there of which a part changes in between.

    measure_downtime.py FOLDER OUT SCRATCH DRIVER SECONDS [MIB [PER_MILLE]]

FOLDER has libckpt.so, ckpt, vast and words.ptx; output goes to OUT, stores to SCRATCH. Four ways, in this order:

    fixed      the driver alone (its lock, checkpoint, restore, unlock), with a context and 2 MiB: what these calls cost in any case
    driver     the driver alone, with all the memory
    mapped     ckpt, its usual way: the memory is libckpt.so's, and what has changed of it is stored
    native     ckpt with CKPT_DEVICE_BACKING=native: the driver moves all of it to the host and back

What counts is what the program has seen: a thread of it uses the device every millisecond, and says for how long it had to wait at
the longest (away); "held" is what `ckpt list` says beside. After its checkpoints every word is compared, and of ckpt's two ways the
program is killed, restarted, and compared again, if there is time left for it. The first checkpoint of ckpt stores everything, and is
named apart. Of what was not reached in its time a line says so. It exits 1 if a word is wrong, something fails, or nothing was
measured of one of the four. Whether the targets are met is said and does not count for that. It needs root.
"""

import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import time

MIB, PER_MILLE = "32768", "10"
# More than these in no way; the first comes besides.
CHECKPOINTS = {"fixed": 20, "driver": 5, "mapped": 30, "native": 10}
# Of all the time that there is, until when each way has to be done.
ENDS = {"fixed": 0.05, "driver": 0.2, "mapped": 0.65, "native": 1.0}
# Of the time of one of ckpt's ways, what is kept for its restart.
FOR_RESTART = 0.35
TARGET_S, TARGET_RATIO, TARGET_MIB = 1.5, 5, 32768

folder, out, scratch, driver, seconds = sys.argv[1:6]
mib, per_mille = (sys.argv[6:] + [MIB, PER_MILLE][len(sys.argv) - 6 :])[:2]
BEGIN = time.monotonic()


class Wrong(Exception):
    pass


class OutOfTime(Exception):
    pass


class Vast:
    """A process that does what it is sent by lines, and answers with lines."""

    def __init__(self, name, words, environment, end):
        self.name, self.words, self.end = name, words, end
        self.errors = open(f"{out}/{name}.errors", "a")
        self.process = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0
        )
        self.read, self.pid = b"", self.process.pid

    def line(self):
        while b"\n" not in self.read:
            left = self.end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise OutOfTime()
            more = os.read(self.process.stdout.fileno(), 4096)
            if not more:
                raise Wrong(f"{self.name}: it has ended with {self.process.wait(10)} ({out}/{self.name}.errors)")
            self.read += more
        line, self.read = self.read.split(b"\n", 1)
        return line.decode()

    def ask(self, what, start=None):
        self.process.stdin.write(f"{what}\n".encode())
        answer = self.line().split()
        if not answer or answer[0] != (start or what):
            raise Wrong(f"{self.name}: it has answered {' '.join(answer)!r} to {what!r}")
        return [float(word) for word in answer[1:]]

    def compare(self):
        (others,) = self.ask("compare", "others")
        if others != 0:
            raise Wrong(f"{self.name}: {others:.0f} words are not what they must be")

    def kill(self):
        self.process.stdin.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def figures(values):
    """Median and largest, of ten and more the 99th of a hundred too."""
    values = sorted(values)
    p99 = f", p99 {values[min(len(values) - 1, int(len(values) * 0.99))]:.1f}" if len(values) >= 10 else ""
    return f"{statistics.median(values):.1f} ms (of {len(values)}{p99}, most {values[-1]:.1f})"


def say(name, text):
    print(f"{name:8} {text}", flush=True)


def command(mibs):
    return [f"{folder}/vast", mibs, per_mille, f"{folder}/words.ptx"]


def driver_alone(name, mibs, end):
    """The medians of the whole, or nothing if none was measured."""
    vast, away, parts = Vast(name, command(mibs), dict(os.environ), end), [], []
    try:
        try:
            if vast.line() != "ready":
                raise Wrong(f"{name}: it does not begin")
            for _ in range(CHECKPOINTS[name]):
                vast.ask("step")
                vast.ask("away")
                parts.append(vast.ask("driver"))
                away += vast.ask("away")
                # Time for one more and the comparison.
                if time.monotonic() + 2 * sum(parts[-1]) / 1e3 + 2 > end:
                    break
        finally:
            if away:
                steps = ", ".join(
                    f"{step} {statistics.median(of):.1f}" for step, of in zip(("lock", "checkpoint", "restore", "unlock"), zip(*parts))
                )
                say(name, f"away {figures(away)}; medians: {steps}")
        vast.end += 10
        vast.compare()
    except OutOfTime:
        say(name, "no time left for " + ("more, nor to compare it" if away else "it: nothing measured"))
    finally:
        vast.kill()
    return statistics.median(away) if away else None


def ckpt(words, end):
    left = end - time.monotonic()
    if left <= 0:
        raise OutOfTime()
    try:
        done = subprocess.run([f"{folder}/ckpt", *words], capture_output=True, text=True, timeout=left)
    except subprocess.TimeoutExpired:
        raise OutOfTime() from None
    if done.returncode != 0:
        raise Wrong(f"ckpt {words[0]}: {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def restarted(name, store, end):
    words = [f"{folder}/ckpt", "restart", store, "--stdio", "inherit"]
    begun = time.monotonic()
    vast = Vast(f"{name}-restart", words, dict(os.environ), end)
    try:
        vast.ask("step")
        restart_s = time.monotonic() - begun
        vast.compare()
        say(name, f"killed and restarted: {restart_s:.1f} s until the next step is done; every word as it must be")
    finally:
        # By the end of its input it ends, however far it is; what does not is killed.
        vast.process.stdin.close()
        try:
            vast.process.wait(5)
        except subprocess.TimeoutExpired:
            vast.kill()


def by_ckpt(name, more, end):
    store, away, totals = f"{scratch}/{name}.store", [], []
    environment = dict(os.environ, LD_PRELOAD=f"{folder}/libckpt.so", CKPT_DIR=store, **more)
    restart_begins = end - FOR_RESTART * (end - time.monotonic())
    vast = Vast(name, command(mib), environment, end)
    try:
        try:
            if vast.line() != "ready":
                raise Wrong(f"{name}: it does not begin")
            for _ in range(1 + CHECKPOINTS[name]):
                vast.ask("step")
                vast.ask("away")
                begun = time.monotonic()
                ckpt(["checkpoint", str(vast.pid)], end)
                totals.append(time.monotonic() - begun)
                away += vast.ask("away")
                # Time for one more, for its comparison and the restart.
                if time.monotonic() + 1.5 * totals[-1] + 2 > restart_begins:
                    break
        finally:
            if away:
                rows = [row for row in json.loads(ckpt(["list", "--json", store], time.monotonic() + 10)) if row["state"] == "sealed"]
                new = [row["new_bytes"] / 2**20 for row in rows]
                say(name, f"first: away {away[0]:.0f} ms, sealed after {totals[0]:.1f} s, {new[0]:.0f} MiB in the store")
                if away[1:]:
                    held = figures([row["stop_ms"] for row in rows[1:]])
                    say(name, f"away {figures(away[1:])}; held {held}")
                    say(name, f"sealed after {statistics.median(totals[1:]):.2f} s; new {statistics.median(new[1:]):.0f} MiB each")
                else:
                    say(name, "no time left for a second checkpoint")
        vast.compare()
        vast.process.kill()
        vast.process.wait(30)
        restarted(name, store, end)
    except OutOfTime:
        say(name, "no time left for " + ("what is not named above" if away else "it: nothing measured"))
    finally:
        vast.kill()
        shutil.rmtree(store, ignore_errors=True)
    return statistics.median(away[1:]) if away[1:] else None


def main():
    ways = {
        "fixed": lambda end: driver_alone("fixed", "2", end),
        "driver": lambda end: driver_alone("driver", mib, end),
        "mapped": lambda end: by_ckpt("mapped", {"CKPT_DEVICE_BACKING": "mapped"}, end),
        "native": lambda end: by_ckpt("native", {"CKPT_DEVICE_BACKING": "native"}, end),
    }
    say("", f"{mib} MiB of device memory, {int(per_mille) / 10:g} % changed between two checkpoints; stores in {scratch}")
    medians, failed = {}, False
    for name, measure in ways.items():
        try:
            medians[name] = measure(BEGIN + ENDS[name] * float(seconds))
        except (Wrong, OSError, ValueError, subprocess.TimeoutExpired) as error:
            medians[name], failed = None, True
            say(name, f"FAILED: {error}")
    ours, others = medians["mapped"], medians["driver"]
    is_size = int(mib) == TARGET_MIB
    if ours is not None:
        target = f"target {TARGET_S * 1e3:.0f} ms: {'met' if ours <= TARGET_S * 1e3 else 'missed'}" if is_size else "no target for this size"
        say("target", f"mapped, median away: {ours:.0f} ms; {target}")
    for name, median in (("driver", others), ("native", medians["native"])):
        if ours and median is not None:
            target = f"; target {TARGET_RATIO}: {'met' if median / ours >= TARGET_RATIO else 'missed'}" if is_size and name == "driver" else ""
            say("target", f"{name} / mapped: {median / ours:.1f}{target}")
    sys.exit(failed or any(median is None for median in medians.values()))


main()
