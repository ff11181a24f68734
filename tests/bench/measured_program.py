"""rewriter.c while it runs, alone or with libckpt.so, and what one checkpoint of it costs."""

import json
import os
import select
import shutil
import subprocess
import time

from surroundings import HERE, PRODUCT, WORK

CHECKPOINT_LIMIT_S = 300
ANSWER_LIMIT_S = 300


class Failed(Exception):
    """A checkpoint or a restart that was not to be had, and why."""


def build_rewriter():
    """Compiles rewriter.c; to be called once."""
    compiler = ["cc", "-std=gnu17", "-O2", "-pthread", "-o", WORK / "rewriter", HERE / "rewriter.c"]
    subprocess.run(compiler, check=True)


def workload(mib, mib_a_second, threads=1, data="random", pattern="uniform", pages="small", idle=0, mappings=0):
    """The arguments of rewriter.c for a program of so much memory that rewrites so much of it each second."""
    return [mib, 100 * mib_a_second / mib, threads, data, pattern, pages, idle, mappings]


class MeasuredProgram:
    """A running rewriter.c. It answers over two pipes, of which both ends are kept: who is restarted finds them."""

    def __init__(self, arguments, prefix=(), variables=None):
        self.input_end, self.commands = os.pipe()
        answers, self.output_end = os.pipe()
        self.answers = open(answers)
        self.log = open(WORK / "program.log", "a")
        command = [*prefix, WORK / "rewriter", *map(str, arguments)]
        variables = dict(os.environ, **(variables or {}))
        # A session of its own: no terminal of whoever measures is a part of the program.
        self.process = subprocess.Popen(command, env=variables, start_new_session=True, **self.streams())
        self.pid = self.process.pid
        if self.answer() != "ready":
            raise Failed(f"the program has not begun: see {self.log.name}")

    def streams(self):
        """What its first three descriptors lead to, for the command that starts or restarts it."""
        return {"stdin": self.input_end, "stdout": self.output_end, "stderr": self.log}

    def answer(self):
        """Its next line."""
        limit = time.monotonic() + ANSWER_LIMIT_S
        while not select.select([self.answers], [], [], 1)[0]:
            # Its end of the pipe is ours, too: there is no end of the file.
            if self.process.poll() is not None:
                raise Failed(f"the program, or who restarts it, has ended with status {self.process.returncode}")
            if time.monotonic() > limit:
                raise Failed(f"the program has said nothing for {ANSWER_LIMIT_S} s")
        return self.answers.readline().rstrip("\n")

    def ask(self, command):
        """The numbers that it answers: those of rewriter.c's command."""
        os.write(self.commands, command.encode() + b"\n")
        return [float(word) for word in self.answer().split()]

    def huge_mib(self):
        """How much of its memory is in huge pages."""
        with open(f"/proc/{self.pid}/smaps_rollup") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:")) / 1024

    def hang_up(self):
        """Says no more to it, at which it ends: rewriter.c reads commands until there are none."""
        os.close(self.commands)
        self.commands = None

    def kill(self):
        """Ends it, or who has restarted it, and waits for its end."""
        self.process.kill()
        self.process.wait()

    def end(self):
        """Ends it, and forgets it."""
        self.kill()
        self.answers.close()
        self.log.close()
        if self.commands is not None:
            self.hang_up()
        os.close(self.input_end)
        os.close(self.output_end)


class ProgramUnderCkpt(MeasuredProgram):
    """A running rewriter.c with libckpt.so, and a store of its own."""

    def __init__(self, arguments, method=None):
        self.store = WORK / "store"
        shutil.rmtree(self.store, ignore_errors=True)
        variables = {
            "CKPT_DIR": str(self.store),
            "CKPT_LOG": str(WORK / "log"),
            "LD_PRELOAD": str(PRODUCT / "libckpt.so"),
        }
        if method is not None:
            variables["CKPT_METHOD"] = method
        super().__init__(arguments, variables=variables)

    def checkpoint(self):
        """Takes one; what `ckpt list` says of it, and how long it took until it was durable, ms."""
        begun = time.monotonic()
        taken(PRODUCT / "ckpt", "checkpoint", self.pid)
        durable_ms = (time.monotonic() - begun) * 1000
        return json.loads(taken(PRODUCT / "ckpt", "list", "--json", self.store))[-1], durable_ms

    def end(self):
        super().end()
        shutil.rmtree(self.store, ignore_errors=True)


def taken(*command, **options):
    """What a command that has succeeded printed."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CHECKPOINT_LIMIT_S, **options
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(words[:2])}: not done within {CHECKPOINT_LIMIT_S} s") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "without a word").splitlines()[-1]
        raise Failed(f"{os.path.basename(words[0])} {words[1]}: status {done.returncode}: {said}")
    return done.stdout


def checkpoints(program, rounds):
    """Takes a checkpoint each second, or as soon as there was time to measure between two that take longer; a dictionary
    of figures for each. Round 0 is the first, which has everything to write.

    Before each the program forks by itself: the least that a clone of it can cost. `page_before_ns` is what rewriting a
    page cost from the last checkpoint to that fork, in round 0 when there was none of either, and `page_during_ns`
    during the checkpoint; `phases` is what the parts of the stop took, where ckpt tells.
    """
    program.ask("cost")
    due = time.monotonic() + 1
    for number in range(rounds + 1):
        time.sleep(0.15)
        [page_before_ns] = program.ask("cost")
        huge_mib = program.huge_mib()
        fork_ms, fork_pause_ms = program.ask("fork")
        time.sleep(0.1)
        program.ask("pause")
        time.sleep(max(0.2, due - time.monotonic()))
        _, rate_before = program.ask("pause")
        program.ask("cost")
        due = time.monotonic() + 1
        row, durable_ms = program.checkpoint()
        pause_ms, rate_during = program.ask("pause")
        [page_during_ns] = program.ask("cost")
        yield {
            "round": number,
            "fork_ms": fork_ms,
            "fork_pause_ms": fork_pause_ms,
            "stop_ms": row["stop_ms"],
            "pause_ms": pause_ms,
            "durable_ms": durable_ms,
            "new_bytes": row["new_bytes"],
            "rate_before": rate_before,
            "rate_during": rate_during,
            "page_before_ns": page_before_ns,
            "page_during_ns": page_during_ns,
            "huge_mib": huge_mib,
            "phases": row.get("stop_phases_ms"),
        }
