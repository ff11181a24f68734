"""Connections to somebody outside the job, who is not there any more after a restart."""

import socket
import sys

import steps

tcp = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
unix = socket.socket(socket.AF_UNIX)
unix.connect(sys.argv[3])
numbers = [tcp.fileno(), unix.fileno()]
for number in range(1, steps.STEPS + 1):
    steps.step(number)
for name, connection in (("tcp", tcp), ("unix", unix)):
    unread = connection.recv(100).decode()
    try:
        then = connection.recv(100).decode() or "the end"
    except ConnectionResetError:
        then = "reset"
    print(f"{name}: {unread}, then {then}", flush=True)
    try:
        connection.send(b"x")
    except BrokenPipeError:
        print(f"{name}: nobody hears", flush=True)
assert numbers == [tcp.fileno(), unix.fileno()]
sys.exit(7)
