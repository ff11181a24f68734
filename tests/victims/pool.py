"""Worker processes of multiprocessing: a pool, a queue, a lock, and memory that they share."""

import multiprocessing
import os
import sys
import time

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60


def square(number):
    return number * number


def count(queue, total, lock):
    """Adds up what comes through the queue, until None comes."""
    while (number := queue.get()) is not None:
        with lock:
            total.value += number
    sys.exit(5)


def wait_at(step):
    """As in victim.h: where a test wants the program to wait, and for which file."""
    place, sign = os.environ.get("CKPT_VICTIM_WAITS_AT"), os.environ.get("CKPT_VICTIM_WAITS_FOR")
    while sign and int(place or 0) == step and not os.path.exists(sign):
        time.sleep(0.001)


def main():
    context = multiprocessing.get_context("fork")
    lock, queue, total = context.Lock(), context.Queue(), context.Value("q", 0)
    counter = context.Process(target=count, args=(queue, total, lock))
    counter.start()
    with context.Pool(3) as pool:
        print("ready", flush=True)
        for step in range(1, STEPS + 1):
            squares = pool.map(square, range(step, step + 20), chunksize=3)
            queue.put(step)
            print("step", step, sum(squares), flush=True)
            wait_at(step)
            time.sleep(0.01)
        pool.close()
        pool.join()
    queue.put(None)
    counter.join()
    print("counted", total.value, "exit", counter.exitcode, flush=True)
    assert total.value == STEPS * (STEPS + 1) // 2
    sys.exit(7)


main()
