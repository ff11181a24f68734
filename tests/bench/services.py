"""The services of the section warm-start: how each is built and started, and what it answers."""

import os
import shutil
import subprocess

from surroundings import HERE, PRODUCT, WORK

CLASSES = 200
EXPRESS = "express@4.21.2"
SOURCES = HERE / "services"
# Kept from one run to the next, in the build folder.
BUILT = PRODUCT.parent / "bench-services"
PART = """public class Part%d implements java.util.function.LongUnaryOperator {
    public long applyAsLong(long x) {
        for (int round = 0; round < 8; round++) {
            x = x * 31 + %d;
            x ^= x >>> 7;
        }
        return x;
    }
}
"""


class Missing(Exception):
    """What a service needs and is not here, and why."""


class Service:
    """Python with numpy, scipy and pandas. All services listen on a port of a network of their own."""

    name = "python3: numpy, scipy, pandas"
    port = 8123
    body = "slope 2.000 root 3.000 part 49800\n"
    variables = {}
    # Debian's packages, and whether they are here.
    packages = ["python3-scipy", "python3-pandas"]

    def is_here(self):
        return succeeds("/usr/bin/python3", "-c", "import numpy, pandas, scipy")

    def build(self):
        """Makes what the command needs, but for the packages."""

    def command(self):
        return ["/usr/bin/python3", SOURCES / "service.py", self.port]


class Java(Service):
    """An HTTP server with generated classes, which is warm before it listens. Its counters are in no file of /tmp: copies would have
    that in common.
    """

    name = f"java: {CLASSES} classes, warmed up"
    port = 8124
    packages = ["default-jdk-headless"]

    def __init__(self):
        value = 1
        for number in range(CLASSES):
            for _ in range(8):
                value = (value * 31 + number) & (1 << 64) - 1
                value ^= value >> 7
        self.body = f"worked {value - (1 << 64) if value >> 63 else value}\n"

    def is_here(self):
        return shutil.which("javac") is not None

    def build(self):
        folder = WORK / "java"
        folder.mkdir()
        for number in range(CLASSES):
            (folder / f"Part{number}.java").write_text(PART % (number, number))
        subprocess.run(["javac", "-d", folder, SOURCES / "Service.java", *folder.glob("Part*.java")], check=True)

    def command(self):
        return ["java", "-Xmx256m", "-XX:+PerfDisableSharedMem", "-cp", WORK / "java", "Service", self.port, CLASSES]


class Node(Service):
    """A web framework, of npm."""

    name = f"node: {EXPRESS}"
    port = 8125
    body = "squares 328350\n"
    variables = {"NODE_PATH": str(BUILT / "node_modules"), "NODE_ENV": "production"}
    packages = ["nodejs", "npm"]

    def is_here(self):
        return shutil.which("node") is not None and shutil.which("npm") is not None

    def build(self):
        installed = BUILT / "installed"
        if installed.exists() and installed.read_text() == EXPRESS:
            return
        shutil.rmtree(BUILT, ignore_errors=True)
        BUILT.mkdir(parents=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact", "--prefix", BUILT, EXPRESS]
        if not succeeds(*command):
            raise Missing(f"npm has not installed {EXPRESS}")
        installed.write_text(EXPRESS)

    def command(self):
        return ["node", SOURCES / "service.js", self.port]


def succeeds(*command):
    words = [str(word) for word in command]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def made_ready(service):
    """Installs and builds what a service needs."""
    if not service.is_here():
        print(f"installing {' '.join(service.packages)}", flush=True)
        variables = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        subprocess.run(["apt-get", "update"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        command = ["apt-get", "install", "-y", "--no-install-recommends", *service.packages]
        done = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Missing(f"apt-get has not installed {' '.join(service.packages)}: {done.stderr.strip()}")
    service.build()


SERVICES = [Service(), Java(), Node()]
