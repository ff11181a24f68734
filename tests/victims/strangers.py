"""Connections to somebody outside the job, who is not there any more after a restart: `strangers.py STEPS PORT PATH [HOST]`."""

import socket
import sys

import steps

host = sys.argv[4] if len(sys.argv) > 4 else "127.0.0.1"
tcp = socket.create_connection((host, int(sys.argv[2])))
# It sends to one place, from whatever address leads there.
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.connect((host, int(sys.argv[2])))
unix = socket.socket(socket.AF_UNIX)
unix.connect(sys.argv[3])
udp_port = udp.getsockname()[1]
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
assert udp.getsockname()[1] == udp_port and udp.getpeername() == (host, int(sys.argv[2]))
assert numbers == [tcp.fileno(), unix.fileno()]
sys.exit(7)
