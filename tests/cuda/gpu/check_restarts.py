"""Checkpoints, kills and restarts counted and interleaved (tests/victims/cuda), twice in a row, and compares each life with an uninterrupted run.

    check_restarts.py FOLDER OUT    FOLDER has libckpt.so, ckpt, both of them and words.ptx; stores and output go to OUT

Prints a line for each kind of state, with how long its devices were away; exits 1 if one has not gone on exactly. It needs root,
because a restart gives programs their old process ids.
"""

import json
import os
import subprocess
import sys
import time

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
]
# Random calls of several threads, by the seeds that decide them.
SEEDS = range(1, 5)
STEPS, PAUSE_US = "400", "10000"
LIMIT_S = 60


class Wrong(Exception):
    pass


def lines(path):
    return open(path).read().count("\n") if os.path.exists(path) else 0


def wait_for_lines(path, count):
    end = time.monotonic() + LIMIT_S
    while lines(path) < count:
        if time.monotonic() > end:
            raise Wrong(f"only {lines(path)} of {count} lines in {path}")
        time.sleep(0.005)


def checkpoint(folder, pid):
    taken = subprocess.run([f"{folder}/ckpt", "checkpoint", str(pid)], capture_output=True, text=True, timeout=LIMIT_S)
    if taken.returncode != 0:
        raise Wrong(taken.stderr.strip())


def one(folder, out, name, words, more):
    with open(f"{out}/{name}.reference", "w") as reference:
        code = subprocess.run(words, stdout=reference, timeout=LIMIT_S).returncode
    environment = dict(os.environ, LD_PRELOAD=f"{folder}/libckpt.so", CKPT_DIR=f"{out}/{name}.store", **more)
    printed = f"{out}/{name}.printed"
    with open(printed, "w") as stdout:
        first = subprocess.Popen(words, stdout=stdout, stdin=subprocess.DEVNULL, env=environment)
    life = first
    try:
        # It goes on in place, once.
        wait_for_lines(printed, 20)
        checkpoint(folder, first.pid)
        for at in (60, 120):
            wait_for_lines(printed, at)
            checkpoint(folder, first.pid)
            wait_for_lines(printed, at + 5)
            os.kill(first.pid, 9)
            life.wait(LIMIT_S)
            restart = [f"{folder}/ckpt", "restart", f"{out}/{name}.store"]
            life = subprocess.Popen(restart, stdin=subprocess.DEVNULL, stderr=open(f"{out}/{name}.restart-{at}", "w"))
        if life.wait(LIMIT_S) != code:
            raise Wrong(f"the last life ended with {life.returncode}: {open(f'{out}/{name}.restart-120').read().strip()}")
    finally:
        if life.poll() is None:
            life.kill()
            life.wait()
    if open(printed).read() != open(f"{out}/{name}.reference").read():
        raise Wrong(f"{printed} differs from {out}/{name}.reference")
    listed = subprocess.run([f"{folder}/ckpt", "list", "--json", f"{out}/{name}.store"], capture_output=True, text=True)
    return ", ".join(f"{row['stop_ms']:.0f}" for row in json.loads(listed.stdout))


def main():
    folder, out = sys.argv[1:]
    failed = False
    kernels = f"{folder}/words.ptx"
    runs = [([f"{folder}/counted", STEPS, PAUSE_US, kernels, *kinds], more, " ".join(kinds)) for kinds, more in KINDS]
    runs += [([f"{folder}/interleaved", STEPS, str(seed), kernels], {}, f"random calls, seed {seed}") for seed in SEEDS]
    for number, (words, more, what) in enumerate(runs):
        what = " ".join([what] + [f"{key}={value}" for key, value in more.items()])
        try:
            print(f"{what:56} exact; devices away for {one(folder, out, f'restart-{number}', words, more)} ms", flush=True)
        except (Wrong, subprocess.TimeoutExpired) as error:
            print(f"{what:56} FAILED: {error}", flush=True)
            failed = True
    sys.exit(failed)


main()
