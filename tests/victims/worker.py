# A program of root's with a worker that has given up its rights: what the worker holds lies in a directory of its user.
# worker.py DIRECTORY GO: the worker says "ready", waits for the file GO, and then says what its descriptors lead to.
import mmap
import os
import socket
import stat
import sys
import time

USER = 65534
directory, go = sys.argv[1:]

pid = os.fork()
if pid:
    _, status = os.waitpid(pid, 0)
    os._exit(7 if status == 0 else 8)

os.setgroups([])
os.setresgid(USER, USER, USER)
os.setresuid(USER, USER, USER)
place = os.path.join(directory, "d")
entry = lambda name: os.path.join(place, name)
source = os.open(entry("input"), os.O_RDONLY)
log = os.open(entry("log"), os.O_RDWR | os.O_APPEND)
mapped = os.open(entry("mapped"), os.O_RDWR)
memory = mmap.mmap(mapped, 4096)
os.close(mapped)
os.mkfifo(entry("fifo"), 0o600)
fifo = os.open(entry("fifo"), os.O_RDWR)
server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
server.bind(entry("socket"))
server.listen(1)
# A file of its own that runs as its owner, and that no path leads to any more.
deleted = os.open(entry("deleted"), os.O_RDWR | os.O_CREAT, 0o700)
os.fchmod(deleted, 0o4755)
os.unlink(entry("deleted"))
os.chdir(place)
print("ready", flush=True)
while not os.path.exists(go):
    time.sleep(0.01)


def about(number):
    found = os.fstat(number)
    return f"{found.st_uid} {stat.S_IMODE(found.st_mode):o}"


os.write(log, b"after\n")
os.write(fifo, b"through")
memory[0:5] = b"shown"
print("input", os.pread(source, 100, 0).decode().strip())
print("log", about(log))
print("deleted", about(deleted))
print("fifo", os.read(fifo, 7).decode(), about(fifo))
print("socket", server.getsockname() == entry("socket"))
print("directory", os.getcwd() == place)
print("user", os.getresuid(), os.getgroups(), flush=True)
os._exit(0)
