"""PostgreSQL under pgbench, and a client of its own whose committed rows must all be there in the end."""

import glob
import os
import subprocess
import sys
import time

import steps

CLIENTS, TRANSACTIONS = 3, 150
BIN = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
# It refuses to run as root.
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
HERE = os.getcwd()
REACHED_BY = ["-h", HERE, "-U", "postgres"]
SUMS = """
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history),
       (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers),
       (SELECT count(*) FROM pgbench_history), (SELECT count(*) FROM steps), (SELECT sum(step) FROM steps);
"""


def program(name, *arguments):
    return [f"{BIN}/{name}", *arguments]


def run(name, *arguments, **options):
    with open("tools.log", "ab") as log:
        subprocess.run(program(name, *arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, **options)


class Client:
    """A session that stays open."""

    def __init__(self):
        command = program("psql", *REACHED_BY, "-X", "-q", "-A", "-t", "-d", "postgres")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, statement):
        self.process.stdin.write(f"{statement}\n\\echo over\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline().rstrip("\n")) != "over":
            assert line or self.process.poll() is None, "psql has ended"
            lines.append(line)
        return lines


os.chmod(".", 0o777)
run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8", **NOBODY)
settings = ["listen_addresses=", "shared_buffers=8MB", "max_connections=20", f"unix_socket_directories={HERE}"]
with open("server.log", "ab") as log:
    options = [word for setting in settings for word in ("-c", setting)]
    server = subprocess.Popen(
        program("postgres", "-D", "data", *options), stdin=subprocess.DEVNULL, stdout=log, stderr=log, **NOBODY
    )
while subprocess.run(program("pg_isready", *REACHED_BY), stdout=subprocess.DEVNULL, check=False).returncode != 0:
    assert server.poll() is None, "the server has ended"
    time.sleep(0.05)
run("pgbench", *REACHED_BY, "-i", "-q", "postgres")
client = Client()
client.ask("CREATE TABLE steps(step int PRIMARY KEY, words text);")
print("filled", flush=True)
with open("pgbench.log", "wb") as log:
    command = program("pgbench", *REACHED_BY, "-n", "-c", str(CLIENTS), "-t", str(TRANSACTIONS), "postgres")
    load = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
for number in range(1, steps.STEPS + 1):
    client.ask(f"INSERT INTO steps SELECT {number}, repeat(md5('{number}'), 20);")
    assert client.ask("SELECT count(*) FROM steps;") == [str(number)]
    steps.step(number)
assert load.wait() == 0, open("pgbench.log").read()
print("sums", *client.ask(SUMS.replace("\n", " ")), flush=True)
run("pg_amcheck", *REACHED_BY, "--install-missing", "-d", "postgres")
client.process.stdin.close()
client.process.wait()
server.terminate()
steps.over(server, 0)
