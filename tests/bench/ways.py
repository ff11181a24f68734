"""The ways to take checkpoints that the section "compare" holds beside one another: ours, and those of others.

A way that is not here says why not (`why_not`) and is left out by name. Files are synced, since ckpt syncs its own
before it says that a checkpoint is there; bytes are those that the files take on the disk.
"""

import os
import shutil
import subprocess
import time

from measured_program import Failed, MeasuredProgram, ProgramUnderCkpt, taken
from surroundings import PRODUCT, WORK

RESTART_LIMIT_S = 300


class Way:
    """What all have in common: files in a directory of their own, and a program without libckpt.so."""

    is_ours = False
    # Whether what it makes is on the disk afterwards.
    is_durable = True
    # Whether the program knows how much it rewrote meanwhile.
    tells_speed = True
    why_no_restart = ""

    def __init__(self, name):
        self.name = name
        self.place = WORK / "way"

    def why_not(self):
        """Why it cannot be measured here, or None."""
        return None

    def start(self, arguments):
        """The program, ready."""
        self.place.mkdir()
        return MeasuredProgram(arguments)

    def checkpoint(self, program, number):
        """Takes one; how long until it was durable, ms."""
        begun = time.monotonic()
        self.take(program, number)
        if self.is_durable:
            sync(self.place)
        return (time.monotonic() - begun) * 1000

    def take(self, program, number):
        """Takes one, synced or not."""
        raise NotImplementedError

    def seen(self, program):
        """What the program says afterwards: its longest standstill, ms, and pages rewritten per second meanwhile."""
        return program.ask("pause")

    def stored_bytes(self):
        """What all checkpoints so far take on the disk."""
        return sum(path.lstat().st_blocks * 512 for path in self.place.rglob("*"))

    def restart(self, program):
        """Kills the program and restarts it from the newest; how long until it answers, ms, or None."""
        return None

    def clean(self):
        """Removes what it has made."""
        shutil.rmtree(self.place, ignore_errors=True)


class NoCheckpoint(Way):
    """The program left alone for as long as a checkpoint might take: what the machine does to it by itself."""

    is_durable = False

    def take(self, program, number):
        time.sleep(0.3)


class BareFork(Way):
    """fork() by the program itself, and a child that ends at once."""

    is_durable = False
    tells_speed = False

    def checkpoint(self, program, number):
        fork_ms, self.pause_ms = program.ask("fork")
        return fork_ms

    def seen(self, program):
        # With the answer to "fork" the program has forgotten it, and what it rewrote meanwhile.
        program.ask("pause")
        return self.pause_ms, None


class Ours(Way):
    """ckpt, by a method of storing memory."""

    is_ours = True

    def __init__(self, name, method=None):
        super().__init__(name)
        self.method = method

    def why_not(self):
        if self.method is None:
            return None
        command = [PRODUCT / "ckpt", "run", "--dir", WORK / "none", "--method", self.method, "--", "true"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return None
        return "not there yet: " + (done.stderr.strip() or f"status {done.returncode}").splitlines()[0]

    def start(self, arguments):
        program = ProgramUnderCkpt(arguments, self.method)
        self.place = program.store
        return program

    def checkpoint(self, program, number):
        return program.checkpoint()[1]

    def restart(self, program):
        program.kill()
        return restarted(program, [PRODUCT / "ckpt", "restart", program.store])


class Gcore(Way):
    """gcore of gdb: a core file, which nobody can restart."""

    why_no_restart = "none"

    def why_not(self):
        return None if shutil.which("gcore") else "skipped: gcore is not on the PATH"

    def take(self, program, number):
        taken("gcore", "-o", self.place / f"core{number}", program.pid)


class Criu(Way):
    """CRIU, which leaves the program running; `incremental`: only what has changed, by the kernel's soft-dirty bits."""

    def __init__(self, name, incremental):
        super().__init__(name)
        self.incremental = incremental

    def why_not(self):
        if not shutil.which("criu"):
            return "skipped: criu is not on the PATH"
        try:
            taken("criu", "check", *(["--feature", "mem_dirty_track"] if self.incremental else []))
        except Failed as failure:
            return f"skipped: it does not run here: {failure}"
        return None

    def take(self, program, number):
        images = self.place / str(number)
        images.mkdir()
        command = [
            "criu",
            "dump",
            "--leave-running",
            "--tree",
            program.pid,
            "--images-dir",
            images,
            "--log-file",
            "dump.log",
        ]
        if self.incremental:
            command += ["--track-mem"]
            if number > 0:
                command += ["--prev-images-dir", f"../{number - 1}"]
        try:
            taken(*command)
        except Failed as failure:
            raise Failed(f"{failure}: {last_error(images / 'dump.log')}") from failure
        self.newest = images
        self.pipes = [os.readlink(f"/proc/{program.pid}/fd/{number}") for number in (0, 1)]

    def restart(self, program):
        program.kill()
        command = ["criu", "restore", "--images-dir", self.newest, "--log-file", "restore.log"]
        for descriptor, pipe in enumerate(self.pipes):
            command += ["--inherit-fd", f"fd[{descriptor}]:{pipe}"]
        try:
            return restarted(program, command)
        except Failed as failure:
            raise Failed(f"{failure}: {last_error(self.newest / 'restore.log')}") from failure


class Dmtcp(Way):
    """DMTCP: a library inside the program that stops it and writes a file, with a coordinator of its own."""

    # Its pipes to outside are not the program's again, so it could not answer.
    why_no_restart = "not measured"

    def why_not(self):
        return None if shutil.which("dmtcp_launch") else "skipped: dmtcp_launch is not on the PATH"

    def start(self, arguments):
        self.place.mkdir()
        port = WORK / "dmtcp-port"
        port.unlink(missing_ok=True)
        prefix = ["dmtcp_launch", "--new-coordinator", "--coord-port", "0", "--port-file", str(port)]
        program = MeasuredProgram(arguments, [*prefix, "--no-gzip", "--ckptdir", str(self.place)])
        self.port = port.read_text().strip()
        return program

    def take(self, program, number):
        taken("dmtcp_command", "--coord-port", self.port, "--bcheckpoint")
        # It writes the same name anew; that of before is kept, as the others' are.
        for image in self.place.glob("ckpt_*.dmtcp"):
            image.rename(self.place / f"{number}-{image.name.removeprefix('ckpt_')}")

    def clean(self):
        subprocess.run(["dmtcp_command", "--coord-port", self.port, "--quit"], capture_output=True, check=False)
        super().clean()


def restarted(program, command):
    """Runs a command that restarts the program and waits for its end; how long until the program answered, ms."""
    words = [str(word) for word in command]
    with open(WORK / "restart.log", "w+") as log:
        begun = time.monotonic()
        program.process = subprocess.Popen(words, **dict(program.streams(), stderr=log))
        try:
            program.ask("pause")
            restart_ms = (time.monotonic() - begun) * 1000
        except Failed as failure:
            log.seek(0)
            raise Failed(f"{words[0]} {words[1]}: {failure}: {log.read().strip()}") from failure
        # It ends when nobody says anything to it, and the command with it.
        program.hang_up()
        program.process.wait(RESTART_LIMIT_S)
        return restart_ms


def last_error(log):
    """The last line of CRIU's log that tells of an error."""
    lines = log.read_text().splitlines() if log.exists() else []
    return next((line for line in reversed(lines) if "Error" in line), f"no error in {log.name}")


def sync(place):
    """Waits until everything in a directory is on the disk."""
    for path in [place, *place.rglob("*")]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


WAYS = [
    NoCheckpoint("no checkpoint, no preload"),
    BareFork("bare fork"),
    Ours("ckpt"),
    Ours("ckpt --method tree", "tree"),
    Ours("ckpt --method local-dedup", "local-dedup"),
    Ours("ckpt --method inc-tracking", "inc-tracking"),
    Ours("ckpt --method full-dump", "full-dump"),
    Gcore("gcore"),
    Criu("criu", incremental=False),
    Criu("criu --track-mem", incremental=True),
    Dmtcp("dmtcp"),
]
