"""Checkpoints of the data on a GPU: exact, consistent while the program goes on, and how often they can be taken.

    check_data.py FOLDER OUT SCRATCH DRIVER SECONDS [PART...]

FOLDER has libckpt.so, ckpt and the programs; what they say goes to OUT, stores to SCRATCH; DRIVER is libcuda.so.1. Parts: steps,
in_step, graphlets, training, often (all by default). Prints a line for each; exits 1 if one is not as it should be, or was not
tried for want of time. What needs PyTorch is skipped by name without it. CKPT_GPU_MIB is how much memory `often` is taken of.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

MIB = 1 << 20
WORDS = 1 << 21
# A part may take so long, if there is so much.
PART_S = {"steps": 60, "in_step": 60, "graphlets": 90, "training": 60, "often": 60}
folder, out, scratch, driver, seconds = sys.argv[1:6]
END = time.monotonic() + float(seconds)
OFTEN_MIB = os.environ.get("CKPT_GPU_MIB", "1024")
lives = []
CKPT = f"{folder}/ckpt"


class Life:
    """A program under libckpt.so, and its checkpoints."""

    def __init__(self, name, command, **more):
        self.store = f"{scratch}/data-{name}"
        shutil.rmtree(self.store, ignore_errors=True)
        self.log = open(f"{out}/data-{name}.out", "w")
        environment = dict(os.environ, LD_PRELOAD=f"{folder}/libckpt.so", CKPT_DIR=self.store)
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE, stderr=self.log, text=True, **more
        )
        lives.append(self)

    def read(self, start):
        """The lines up to the one that begins so."""
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith(start):
                return lines
        raise AssertionError(f"the program has ended: {lines[-3:]}, {self.process.wait()}")

    def take(self, *more):
        words = [CKPT, "checkpoint", str(self.process.pid), "--data", *more]
        answer = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert answer.returncode == 0, answer
        return [int(line) for line in answer.stdout.split()]

    def show(self, number):
        answer = subprocess.run([CKPT, "show", self.store, str(number), "--json"], capture_output=True, check=True)
        return json.loads(answer.stdout)

    def extract(self, number, region):
        words = [CKPT, "extract", self.store, str(number), "--region", str(region), "-o", "-"]
        return subprocess.run(words, capture_output=True, check=True, timeout=300).stdout

    def rows(self):
        return json.loads(subprocess.run([CKPT, "list", self.store, "--json"], capture_output=True, check=True).stdout)

    def verify(self):
        subprocess.run([CKPT, "verify", self.store], check=True, capture_output=True, timeout=300)

    def go_on(self):
        self.process.send_signal(signal.SIGUSR2)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.store, ignore_errors=True)


def middle(values):
    values = sorted(values)
    return f"{values[len(values) // 2]:.1f} (p99 {values[int(len(values) * 0.99)]:.1f})"


def steps():
    """tests/victims/cuda/stepped.cc: the grid, which the step changes in 50 places, and what is filled anew."""
    life = Life("steps", [f"{folder}/stepped"])
    numbers = []
    for step in range(1, 7):
        life.read(f"step {step}")
        numbers += life.take()
        life.go_on()
    life.read("done")
    grid = bytearray().join((word * 2654435761 % (1 << 32)).to_bytes(4, "little") for word in range(WORDS))
    moved = []
    for step, number in enumerate(numbers, 1):
        for n in range(50 if step > 1 else 0):
            word = (step * 7919 + n * 104729) % WORDS
            grid[4 * word : 4 * word + 4] = (step * 1000 + n).to_bytes(4, "little")
        view = life.show(number)
        last = step if step > 2 else 1
        filled = lambda count, factor: bytes((n * factor + (n >> 8) + last) % 256 for n in range(count))
        small = 3000 if step < 4 else 5000
        expected = {
            ("device 0", 4 * WORDS): bytes(grid),
            ("device 0", small): filled(small, 31),
            ("managed", MIB): filled(MIB, 7),
            ("device 0", 500_000): filled(500_000, 13),
            ("global 0", 4096): filled(4096, 3),
            ("mapped 0", 4 * MIB): filled(4 * MIB, 5),
        }
        for (kind, count), content in expected.items():
            (one,) = [it for it in view["allocations"] if (it["kind"], it["bytes"]) == (kind, count)]
            assert life.extract(number, one["id"]) == content, f"{kind}, {count} bytes, at step {step}"
        moved.append(view["moved"]["device_to_host_bytes"])
    life.verify()
    life.end()
    assert moved[1] <= 50 * 128 + (48 << 10), moved
    return f"six steps exact; {moved[0]} bytes left the device at first, {moved[1]} for 50 changed chunks"


def in_step():
    life = Life("in_step", [f"{folder}/in_step"])
    life.read("running")
    numbers = life.take("--every", "10ms", "--count", "50")
    life.go_on()
    life.read("done")
    for number in numbers:
        buffers = [it for it in life.show(number)["allocations"] if (it["kind"], it["bytes"]) == ("device 0", 4 * MIB)]
        rounds = []
        for buffer in buffers:
            content = life.extract(number, buffer["id"])
            assert content == content[:4] * MIB, f"a buffer of {number} is of several rounds"
            rounds.append(int.from_bytes(content[:4], "little"))
        assert len(rounds) == 3 and rounds[0] >= rounds[1] >= rounds[2] >= rounds[0] - 1, rounds
    life.end()
    return f"{len(numbers)} checkpoints, each of one moment"


def graphlets():
    """Counters only grow."""
    # It stops for a moment behind each digest, and so lasts for half a minute.
    graph = ["--family", "delaunay", "--order", "natural", "--vertices", "1000000", "--checkpoints", "100", "--pause-ms", "300"]
    life = Life("graphlets", [f"{folder}/graphlets", "count", *graph, "--driver", driver])
    life.read("")
    numbers, before, largest = [], None, 0
    while len(numbers) < 12:
        numbers += life.take()
        life.read("")
    assert life.process.poll() is None, "it has ended before it was looked at"
    life.process.kill()
    for number in numbers:
        buffers = [it for it in life.show(number)["allocations"] if it["kind"] == "device 0"]
        largest = max(buffers, key=lambda it: it["bytes"])
        counters = memoryview(life.extract(number, largest["id"])).cast("I")
        if before is not None:
            assert len(before) == len(counters), "another allocation is the largest"
            some = zip(before[::97], counters[::97])
            assert all(old <= new for old, new in some), f"a counter of {number} has become less"
        before = counters
    assert any(before), "nothing has been counted"
    life.verify()
    rows = life.rows()
    new = [row["new_bytes"] for row in rows if row["state"] == "sealed"]
    life.end()
    return f"{len(numbers)} checkpoints of {largest['bytes']} bytes, counters grow; new in the store: {new[0]}, then {middle(new[1:])}"


def training():
    try:
        import torch  # noqa: F401
    except ImportError:
        return "skipped: no PyTorch"
    life = Life("training", [sys.executable, f"{folder}/train.py"])
    compared = 0
    for step in range(1, 6):
        said = [line.split() for line in life.read("waiting") if line.startswith("step")]
        (number,) = life.take()
        blocks = [it for it in life.show(number)["allocations"] if it["kind"] in ("device 0", "mapped 0")]
        for _, _, address, count, digest in said:
            address, count = int(address), int(count)
            holds = lambda it: 0 <= address - int(it["address"], 16) <= it["bytes"] - count
            (block,) = filter(holds, blocks)
            start = address - int(block["address"], 16)
            content = life.extract(number, block["id"])[start : start + count]
            assert hashlib.sha256(content).hexdigest() == digest, f"a parameter at step {step}"
            compared += 1
        life.process.stdin.write("\n")
        life.process.stdin.flush()
    life.end()
    return f"{compared} parameters in 5 checkpoints as PyTorch says they are"


def often():
    lines = []
    for words in (100, 10_000):
        life = Life("often", [f"{folder}/touches", OFTEN_MIB, str(words)])
        life.read("ready")
        life.take()
        numbers = life.take("--every", "10ms", "--count", "100")
        rows = [row for row in life.rows() if row["id"] in numbers]
        sealed = sorted(os.stat(f"{life.store}/manifests/{number:010}.manifest").st_mtime for number in numbers)
        apart = [(after - before) * 1e3 for before, after in zip(sealed, sealed[1:])]
        moved = [life.show(number)["moved"]["device_to_host_bytes"] for number in numbers[::10]]
        life.end()
        lines.append(
            f"{OFTEN_MIB} MiB, {words} words every 10 ms: one every {middle(apart)} ms, devices held {middle([row['stop_ms'] for row in rows])}"
            f" ms, over the bus {middle([count / 1024 for count in moved])} KiB"
        )
    return "; ".join(lines)


def out_of_time(*_):
    raise TimeoutError("it has taken too long")


PARTS = {"steps": steps, "in_step": in_step, "graphlets": graphlets, "training": training, "often": often}
failed = False
signal.signal(signal.SIGALRM, out_of_time)
for name in sys.argv[6:] or PARTS:
    begun = time.monotonic()
    left = int(END - begun)
    try:
        if left < 5:
            raise TimeoutError("not tried: no time left")
        signal.alarm(min(left, PART_S[name]))
        said = PARTS[name]()
    except Exception as error:  # every part is tried
        failed, said = True, f"FAILED: {type(error).__name__} {str(error)[:300]}"
    signal.alarm(0)
    # One that has failed has left its program behind, and a store.
    while lives:
        lives.pop().end()
    print(f"{name:10} {time.monotonic() - begun:5.0f} s  {said}", flush=True)
sys.exit(failed)
