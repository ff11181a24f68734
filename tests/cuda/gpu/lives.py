"""Programs that print a line for each step: checkpointed, killed, restarted twice in a row, and compared with an uninterrupted run.

It needs root, because a restart gives programs their old process ids.
"""

import json
import os
import subprocess
import sys
import time

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


def check_all(folder, out, programs):
    """Of each program its command, further environment, and what to call it; prints a line for each. Whether all are right."""
    all_right = True
    for number, (words, more, what) in enumerate(programs):
        what = " ".join([what] + [f"{key}={value}" for key, value in more.items()])
        try:
            away = one(folder, out, f"{os.path.basename(sys.argv[0])}-{number}", words, more)
            print(f"{what:56} exact; devices away for {away} ms", flush=True)
        except (Wrong, subprocess.TimeoutExpired) as error:
            print(f"{what:56} FAILED: {error}", flush=True)
            all_right = False
    return all_right
