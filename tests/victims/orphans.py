"""Leaves orphans, which end a moment later, and goes on for STEPS steps."""

import os
import sys
import time

STEPS = int(sys.argv[1])

for _ in range(10):
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.waitpid(child, 0)
print("left", flush=True)
for step in range(STEPS):
    print("step", step, flush=True)
    time.sleep(0.02)
sys.exit(42)
