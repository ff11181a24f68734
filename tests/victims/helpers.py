"""Starts a helper with an environment of its own, which has nothing of the program's: `helpers.py STEPS FIRST COMMAND...`. The helper gives
each line back. FIRST is an entry of its environment, or "-" for none at all."""

import subprocess
import sys

from steps import STEPS, over, step

first = sys.argv[2]
environment = dict([first.split("=", 1)]) if first != "-" else {}
helper = subprocess.Popen(sys.argv[3:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
for number in range(STEPS):
    helper.stdin.write(b"line %d\n" % number)
    helper.stdin.flush()
    step(number, helper.stdout.readline().decode().strip())
helper.stdin.close()
over(helper, 0)
