"""Answers requests on a port with how many there were, and says so; `serves.py PORT`."""

import socket
import sys

server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
count = 0
while True:
    connection, _ = server.accept()
    with connection:
        count += 1
        connection.sendall(b"request %d\n" % count)
    print("served", count, flush=True)
