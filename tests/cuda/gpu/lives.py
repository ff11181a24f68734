"""Programs that print a line for each step: checkpointed, killed, restarted twice in a row, and compared with an uninterrupted run.

A program does not end before its last checkpoint: behind step GUARD it waits for a file (tests/victims/cuda/paced.h), or it has
pauses that are long enough. It needs root, because a restart gives programs their old process ids.
"""

import json
import os
import re
import shutil
import subprocess
import time

STEPS, GUARD, PAUSE_US = 400, 350, 20000
# Of one program, its uninterrupted run included.
PROGRAM_S = 75


class Wrong(Exception):
    pass


class Clock:
    """Until when something may take."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return max(self.end - time.monotonic(), 0.01)

    def is_over(self):
        return time.monotonic() >= self.end


class Program:
    """What is run, and what makes it another one: variables of its environment.

    `reference` is the same without pauses, `ignored` a pattern of what is not the same each time, `guarded` whether it waits by itself.
    """

    def __init__(self, what, words, more=None, reference=None, ignored=None, guarded=True, program_s=PROGRAM_S):
        self.what, self.words, self.more = what, words, more or {}
        self.reference, self.ignored, self.guarded = reference or words, ignored, guarded
        self.program_s = program_s

    def name(self):
        return " ".join([self.what] + [f"{key}={value}" for key, value in self.more.items() if key.startswith("CKPT_")])

    def environment(self, **more):
        """The driver, and what libraries the caller has, are still found."""
        environment = dict(os.environ, **self.more)
        paths = [self.more.get("LD_LIBRARY_PATH"), os.environ.get("LD_LIBRARY_PATH")]
        if any(paths):
            environment["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
        return dict(environment, **more)

    def comparable(self, path):
        text = content(path)
        return re.sub(self.ignored, "", text) if self.ignored else text


def content(path):
    if not os.path.exists(path):
        return ""
    with open(path, errors="replace") as file:
        return file.read()


def last_line(path):
    return (content(path).strip().splitlines() or ["nothing said"])[-1]


def wait_until(what, clock, holds, process=None):
    while not holds():
        if clock.is_over():
            raise Wrong(f"no time left to wait until {what}")
        if process is not None and process.poll() is not None and not holds():
            raise Wrong(f"it has ended with {process.returncode} before {what}")
        time.sleep(0.005)


def is_program(pid, words):
    """Whether the process is still that program: not one that has its id by now."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[:-1] == [word.encode() for word in words]
    except OSError:
        return False


class Lives:
    """A program from its start to its last end. What it prints and says goes to files of its own."""

    def __init__(self, folder, out, scratch, name, program, clock):
        self.folder, self.program, self.clock = folder, program, clock
        self.store, self.sign = f"{scratch}/{name}.store", f"{scratch}/{name}.go-on"
        self.base = f"{out}/{name}"
        self.printed, self.errors = f"{self.base}.printed", f"{self.base}.errors"
        for path in (self.sign, self.printed, self.errors):
            if os.path.exists(path):
                os.remove(path)
        shutil.rmtree(self.store, ignore_errors=True)
        more = {"LD_PRELOAD": f"{folder}/libckpt.so", "CKPT_DIR": self.store}
        if program.guarded:
            more.update(CKPT_VICTIM_WAITS_AT=str(GUARD), CKPT_VICTIM_WAITS_FOR=self.sign)
        with open(self.printed, "w") as stdout, open(self.errors, "w") as stderr:
            self.process = subprocess.Popen(
                program.words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=program.environment(**more)
            )
        self.pid = self.process.pid
        self.restarts = []

    def lines(self):
        return content(self.printed).count("\n")

    def wait_for_more(self, count):
        wanted = self.lines() + count
        if self.program.guarded:
            wanted = min(wanted, GUARD)
        wait_until(f"{wanted} lines", self.clock, lambda: self.lines() >= wanted, self.process)

    def call(self, *words):
        try:
            done = subprocess.run([f"{self.folder}/ckpt", *words], capture_output=True, text=True, timeout=self.clock.left())
        except subprocess.TimeoutExpired:
            raise Wrong(f"ckpt {words[0]} has taken too long") from None
        if done.returncode != 0:
            raise Wrong(f"ckpt {words[0]}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def checkpoint(self):
        self.call("checkpoint", str(self.pid))

    def wait(self):
        try:
            return self.process.wait(self.clock.left())
        except subprocess.TimeoutExpired:
            raise Wrong("it does not end") from None

    def kill_and_restart(self):
        os.kill(self.pid, 9)
        self.wait()
        began = time.monotonic()
        number = len(self.restarts) + 1
        pid_file = f"{self.base}.pid-{number}"
        if os.path.exists(pid_file):
            os.remove(pid_file)
        words = [f"{self.folder}/ckpt", "restart", self.store, "--pid-file", pid_file, "--end-leftovers"]
        with open(f"{self.base}.restart-{number}", "w") as stderr:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
        try:
            wait_until("it is restarted", self.clock, lambda: content(pid_file).strip(), self.process)
            pid = int(content(pid_file).split()[0])
            if pid != self.pid:
                raise Wrong(f"it was process {self.pid}, and is {pid}")
            # What is printed behind the checkpoint has been cut off.
            self.wait_for_more(2)
        except Wrong as wrong:
            raise Wrong(f"restart {number}: {wrong}: {last_line(f'{self.base}.restart-{number}')}") from None
        self.restarts.append(time.monotonic() - began)

    def go_on(self):
        with open(self.sign, "w"):
            pass

    def end(self):
        """Whatever it has come to, nothing of it stays."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        # Without its `ckpt restart`, it runs on.
        if is_program(self.pid, self.program.words):
            os.kill(self.pid, 9)
        shutil.rmtree(self.store, ignore_errors=True)


def uninterrupted(program, path, clock):
    with open(path, "w") as stdout, open(f"{path}.errors", "w") as stderr:
        try:
            return subprocess.run(
                program.reference,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=program.environment(),
                timeout=clock.left(),
            ).returncode
        except subprocess.TimeoutExpired:
            raise Wrong("the uninterrupted run has taken too long") from None


def one(folder, out, scratch, name, program, clock):
    reference = f"{out}/{name}.reference"
    code = uninterrupted(program, reference, clock)
    # counted ends with 7, so that a status is seen to come through.
    if code not in (0, 7) or content(reference).count("\n") < 10:
        raise Wrong(f"the uninterrupted run ended with {code}: {last_line(f'{reference}.errors')}")
    lives = Lives(folder, out, scratch, name, program, clock)
    try:
        # It goes on in place, once.
        lives.wait_for_more(5)
        lives.checkpoint()
        for _ in range(2):
            lives.wait_for_more(5)
            lives.checkpoint()
            lives.wait_for_more(3)
            lives.kill_and_restart()
        lives.go_on()
        ended = lives.wait()
        if ended != code:
            raise Wrong(f"the last life ended with {ended}, not {code}: {last_line(f'{lives.base}.restart-2')}")
        if program.comparable(lives.printed) != program.comparable(reference):
            raise Wrong(f"{lives.printed} differs from {reference}")
        away = ", ".join(f"{row['stop_ms']:.0f}" for row in json.loads(lives.call("list", "--json", lives.store)))
        back = ", ".join(f"{seconds:.1f}" for seconds in lives.restarts)
        return f"exact; away for {away} ms; restarted in {back} s"
    finally:
        lives.end()


def check_all(folder, out, scratch, programs, clock):
    """Prints a line for each. Whether all are right. CKPT_GPU_PROGRAMS is a pattern of which alone are run."""
    all_right = True
    pattern = os.environ.get("CKPT_GPU_PROGRAMS", "")
    programs = [program for program in programs if re.search(pattern, program.name())]
    for number, program in enumerate(programs):
        begun = time.monotonic()
        try:
            if clock.left() < 10:
                raise Wrong("not run: no time left")
            said = one(folder, out, scratch, f"{number}", program, Clock(min(program.program_s, clock.left())))
        except (Wrong, OSError, ValueError) as error:
            said, all_right = f"FAILED: {error}", False
        print(f"{program.name():56} {time.monotonic() - begun:4.0f} s  {said}", flush=True)
    return all_right


def can_be_evacuated(folder, driver, clock):
    """Whether the driver lets managed memory be evacuated: a program that has some is refused by name otherwise."""
    words = [f"{folder}/ckpt", "devices", "--driver", driver, "--managed"]
    try:
        tried = subprocess.run(words, capture_output=True, text=True, timeout=min(30, clock.left()))
        print(f"managed memory can be evacuated: {tried.stdout.strip() or tried.stderr.strip()}", flush=True)
        found = json.loads(tried.stdout)
        return bool(found["leaves"] and found["can_be_registered"])
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        print(f"managed memory can be evacuated: no answer: {error!r}", flush=True)
        return False


def refused_by_name(folder, out, scratch, program, clock):
    """A checkpoint of it is refused, and it goes on to its end. Prints a line; whether that is so."""
    try:
        lives = Lives(folder, out, scratch, "refused", program, clock)
        try:
            lives.wait_for_more(5)
            words = [f"{folder}/ckpt", "checkpoint", str(lives.pid)]
            answer = subprocess.run(words, capture_output=True, text=True, timeout=clock.left())
            if answer.returncode != 4 or "managed memory (cuMemAllocManaged)" not in answer.stderr:
                raise Wrong(f"{answer.returncode}: {answer.stderr.strip()}")
            lives.go_on()
            if lives.wait() not in (0, 7):
                raise Wrong(f"the program ended with {lives.process.returncode}: {last_line(lives.errors)}")
        finally:
            lives.end()
    except (Wrong, OSError, subprocess.TimeoutExpired) as error:
        print(f"{program.name():56} FAILED: {error}", flush=True)
        return False
    print(f"{program.name():56} refused by name, and its program goes on", flush=True)
    return True
