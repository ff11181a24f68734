"""redis-server with 200,000 keys, which writes them to a file in the background, and a client that goes on meanwhile."""

import hashlib
import socket
import time

import steps

KEYS = 200_000


class Client:
    def __init__(self, port):
        self.stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")

    def call(self, *words):
        parts = [str(word).encode() for word in words]
        self.stream.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        self.stream.flush()
        answer = self.stream.readline().rstrip()
        if answer[:1] == b"$":
            return self.stream.read(int(answer[1:]) + 2)[:-2].decode()
        assert answer[:1] in b"+:", answer
        return answer[1:].decode()


def value(number):
    return hashlib.sha1(b"%d" % number).hexdigest()


port = steps.free_port()
# One file is all of redis' tools, each by its name.
redis = steps.server(
    port,
    *["redis-server", "--port", str(port), "--save", "", "--dir", ".", "--enable-debug-command", "yes"],
    executable="/usr/bin/redis-check-rdb",
)
client = Client(port)
client.call("DEBUG", "POPULATE", KEYS, "key", 40)
print("filled", client.call("DBSIZE"), flush=True)
for number in range(1, steps.STEPS + 1):
    if number in (10, 2 * steps.STEPS // 3):
        while "rdb_bgsave_in_progress:0" not in client.call("INFO", "persistence"):
            time.sleep(0.01)
        client.call("BGSAVE")
    for key in range(number * 20, number * 20 + 20):
        client.call("SET", f"new{key}", value(key))
    assert client.call("GET", f"new{number * 20}") == value(number * 20)
    steps.step(number)
print("digest", client.call("DEBUG", "DIGEST"), client.call("DBSIZE"), flush=True)
client.stream.write(b"SHUTDOWN NOSAVE\r\n")
client.stream.flush()
steps.over(redis, 0)
