"""Six threads hash and pass work on; every step prints one line and appends one to a file."""

import hashlib
import os
import queue
import random
import sys
import threading

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 80
WORKERS = 6
# As in victim.h: where a test wants the program to wait, and for which file.
WAITS_AT = int(os.environ.get("CKPT_VICTIM_WAITS_AT", "0"))
WAITS_FOR = os.environ.get("CKPT_VICTIM_WAITS_FOR", "/")


def work(number, tasks, results):
    """Keeps a random generator and a digest of its own; both depend on every earlier step."""
    generator = random.Random(number)
    digest = hashlib.sha256(str(number).encode())
    kept = {}
    while (step := tasks.get()) is not None:
        for _ in range(400):
            digest.update(generator.random().hex().encode())
        kept[step] = digest.hexdigest()
        if len(kept) > 20:
            del kept[min(kept)]
        results.put(hash_of(kept))


def hash_of(kept):
    return hashlib.sha256(repr(sorted(kept.items())).encode()).hexdigest()[:16]


def main():
    lanes = [(queue.Queue(), queue.Queue()) for _ in range(WORKERS)]
    threads = [threading.Thread(target=work, args=(n, *lane)) for n, lane in enumerate(lanes)]
    for thread in threads:
        thread.start()
    pause = threading.Event()
    with open("lines", "w") as file:
        print("ready", flush=True)
        for step in range(STEPS):
            for tasks, _ in lanes:
                tasks.put(step)
            sums = [results.get() for _, results in lanes]
            print(f"step {step} {' '.join(sums)}", flush=True)
            file.write(f"{step} {sums[step % WORKERS]}\n")
            file.flush()
            while step + 1 == WAITS_AT and not os.path.exists(WAITS_FOR):
                pause.wait(0.001)
            pause.wait(0.01)
    for tasks, _ in lanes:
        tasks.put(None)
    for thread in threads:
        thread.join()
    print("verified", flush=True)
    sys.exit(9)


main()
