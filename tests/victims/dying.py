"""Takes its time to die: all of its memory (2 GiB of zeros) has to be given back."""

import mmap

from steps import STEPS, step

memory = mmap.mmap(-1, 2 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(0, len(memory), mmap.PAGESIZE):
    memory[page] = 0
for number in range(STEPS):
    step(number)
