"""numpy: products of matrices in the threads of its BLAS, random numbers, a memory-mapped array, sorting."""

import hashlib
import os
import sys
import time

import numpy as np

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
# As in victim.h: where a test wants the program to wait, and for which file.
WAITS_AT = int(os.environ.get("CKPT_VICTIM_WAITS_AT", "0"))
WAITS_FOR = os.environ.get("CKPT_VICTIM_WAITS_FOR", "/")
SIDE = 150


def main():
    generator = np.random.default_rng(4711)
    state = generator.standard_normal((SIDE, SIDE))
    mapped = np.memmap("mapped", dtype="f8", mode="w+", shape=(64, SIDE))
    print("ready", flush=True)
    for step in range(1, STEPS + 1):
        product = state @ generator.standard_normal((SIDE, SIDE))
        state = product / np.linalg.norm(product) + np.eye(SIDE)
        values = np.sort(np.linalg.solve(state, product[:, step % SIDE]))
        mapped[step % 64] = values
        digest = hashlib.sha256(state.tobytes() + values.tobytes() + mapped.tobytes()).hexdigest()
        print(f"step {step} {digest[:32]} {generator.integers(1 << 60)}", flush=True)
        while step == WAITS_AT and not os.path.exists(WAITS_FOR):
            time.sleep(0.001)
        time.sleep(0.01)
    mapped.flush()
    print("verified", flush=True)
    sys.exit(9)


main()
