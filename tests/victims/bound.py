"""http.server and redis-server at one address of this host, and clients that keep their connections: `bound.py STEPS ADDRESS`. Each step
prints the address that the connections have by then, over which new ones come, too."""

import http.client
import os
import socket
import sys

import steps

address = sys.argv[2]


def call(stream, *words):
    stream.write((" ".join(words) + "\r\n").encode())
    stream.flush()
    return stream.readline().decode().strip()


os.makedirs("www", exist_ok=True)
with open("www/page", "w") as file:
    file.write("page")
web_port, redis_port = 8081, 8082
web = steps.server(
    web_port,
    *[sys.executable, "-m", "http.server", "--protocol", "HTTP/1.1", "--bind", address, "-d", "www", str(web_port)],
    host=address,
)
# One file is all of redis' tools, each by its name.
redis = steps.server(
    redis_port,
    *["redis-server", "--port", str(redis_port), "--bind", address, "--save", "", "--dir", ".", "--protected-mode", "no"],
    host=address,
    executable="/usr/bin/redis-check-rdb",
)
page = http.client.HTTPConnection(address, web_port)
page.connect()
connection = page.sock
keys = socket.create_connection((address, redis_port))
stream = keys.makefile("rwb")
for number in range(1, steps.STEPS + 1):
    page.request("GET", "/page")
    assert page.getresponse().read() == b"page"
    assert page.sock is connection, "it has connected anew"
    assert call(stream, "INCR", "steps") == f":{number}"
    if number % 5 == 0:
        with socket.create_connection((keys.getpeername()[0], redis_port)) as new:
            assert call(new.makefile("rwb"), "PING") == "+PONG"
    steps.step(number, "at", page.sock.getpeername()[0])
page.close()
web.terminate()
web.wait(timeout=30)
stream.write(b"SHUTDOWN NOSAVE\r\n")
stream.flush()
steps.over(redis, 0)
