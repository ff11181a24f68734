"""Has ends of two pipes whose other ends are elsewhere, and says at its end, when the file `last` is there, what has become of them."""

import os
import signal
import sys
import time

signal.signal(signal.SIGPIPE, signal.SIG_IGN)
# Named pipes whose names are gone are pipes without names.
reader = os.open("from-outside", os.O_RDONLY | os.O_NONBLOCK)
writer = os.open("to-outside", os.O_WRONLY | os.O_NONBLOCK)
for name in ["from-outside", "to-outside"]:
    os.unlink(name)
print("ready", reader, writer, flush=True)
while not os.path.exists("last"):
    time.sleep(0.01)


def outcome(action):
    try:
        return action()
    except OSError as error:
        return type(error).__name__


print(outcome(lambda: os.read(reader, 100)), flush=True)
print(outcome(lambda: os.read(reader, 100)), flush=True)
print(outcome(lambda: os.write(writer, b"x")), flush=True)
sys.exit(9)
