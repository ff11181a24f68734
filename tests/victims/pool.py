"""Worker processes of multiprocessing: a pool, a queue, a lock, and memory that they share."""

import multiprocessing
import sys

import steps


def square(number):
    return number * number


def count(queue, total, lock):
    """Adds up what comes through the queue, until None comes."""
    while (number := queue.get()) is not None:
        with lock:
            total.value += number
    sys.exit(5)


def main():
    context = multiprocessing.get_context("fork")
    lock, queue, total = context.Lock(), context.Queue(), context.Value("q", 0)
    counter = context.Process(target=count, args=(queue, total, lock))
    counter.start()
    with context.Pool(3) as pool:
        print("ready", flush=True)
        for step in range(1, steps.STEPS + 1):
            squares = pool.map(square, range(step, step + 20), chunksize=3)
            queue.put(step)
            steps.step(step, sum(squares))
        pool.close()
        pool.join()
    queue.put(None)
    counter.join()
    print("counted", total.value, "exit", counter.exitcode, flush=True)
    assert total.value == steps.STEPS * (steps.STEPS + 1) // 2
    sys.exit(7)


main()
