"""What scripts for jobs share: steps that a test can wait for, and programs of the machine as children."""

import os
import socket
import subprocess
import sys
import time

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60


def step(number, *what):
    """Prints a line, and waits where a test wants the program to wait, as in victim.h."""
    print("step", number, *what, flush=True)
    place, sign = os.environ.get("CKPT_VICTIM_WAITS_AT"), os.environ.get("CKPT_VICTIM_WAITS_FOR")
    while sign and int(place or 0) == number and not os.path.exists(sign):
        time.sleep(0.001)
    time.sleep(0.01)


def free_port():
    """A port of this machine that nobody listens to."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def server(port, *command, log="server.log", host="127.0.0.1", **options):
    """Starts a server, and waits until it listens."""
    with open(log, "ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)
    while True:
        try:
            socket.create_connection((host, port)).close()
            return process
        except ConnectionRefusedError:
            assert process.poll() is None, f"{command} has ended"
            time.sleep(0.02)


def over(process, *codes):
    """The server has ended well; so does the script."""
    code = process.wait(timeout=30)
    assert code in codes, code
    print("verified", flush=True)
    sys.exit(7)
