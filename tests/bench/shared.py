"""MIB of memory that CHILDREN processes and their parent share and write to now and then: shared.py MIB CHILDREN."""

import mmap
import os
import random
import sys
import time

MIB = 1 << 20


def touch(memory, at):
    while True:
        time.sleep(0.01)
        memory[at] = (memory[at] + 1) & 255


mib, children = int(sys.argv[1]), int(sys.argv[2])
memory = mmap.mmap(-1, mib * MIB)
noise = random.Random(1).randbytes(MIB)
for part in range(mib):
    memory[part * MIB : (part + 1) * MIB] = part.to_bytes(16, "little") + noise[16:]
for child in range(children):
    if os.fork() == 0:
        touch(memory, child)
print("ready", flush=True)
touch(memory, children)
