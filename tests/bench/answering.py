"""Commands that are measured until they answer (first_answer.c), and what memory they take meanwhile."""

import os
import select
import subprocess
from pathlib import Path

from measured_program import Failed
from surroundings import HERE, KIB, MIB, WORK

LIMIT_S = 120


def build_first_answer():
    """Compiles first_answer.c; to be called once."""
    command = ["cc", "-std=gnu17", "-O2", "-o", WORK / "first_answer", HERE / "first_answer.c"]
    subprocess.run(command, check=True)


class Answering:
    """A command in a network of its own, that is begun later, and lives until it is ended."""

    def __init__(self, service, command, variables=None):
        words = [str(word) for word in [WORK / "first_answer", service.port, service.body, *command]]
        self.log = open(WORK / "service.log", "a+")
        self.at = self.log.seek(0, os.SEEK_END)
        self.process = subprocess.Popen(
            words,
            env=dict(os.environ, **service.variables, **(variables or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.line()

    def line(self):
        """The next thing that first_answer says."""
        said = ""
        if select.select([self.process.stdout], [], [], LIMIT_S)[0]:
            said = self.process.stdout.readline()
        if not said:
            self.log.flush()
            told = Path(self.log.name).read_bytes()[self.at :].decode(errors="replace").strip()
            self.end()
            raise Failed(told or "no answer")
        return said

    def begin(self):
        """Starts the command."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self):
        """When it was started and when it had answered, ms of the monotonic clock."""
        begun, answered, self.pid = map(int, self.line().split())
        return begun / 1e6, answered / 1e6

    def first_answer(self):
        """How long it took, from its start to its answer, ms."""
        self.begin()
        begun, answered = self.answer()
        return answered - begun

    def pss_mib(self):
        """Memory in proportion to who shares it: of the program, and of the processes of ckpt beside it."""
        program = ours = 0
        for pid in below(self.process.pid):
            try:
                pss = sum(int(row.split()[1]) for row in open(f"/proc/{pid}/smaps_rollup") if row.startswith("Pss:"))
                is_ours = os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "ckpt"
            except OSError:
                continue  # it has ended
            program += 0 if is_ours else pss
            ours += pss if is_ours else 0
        return program * KIB / MIB, ours * KIB / MIB

    def brings_memory(self):
        """Whether memory of a lazy restart is still to come."""
        for pid in below(self.process.pid):
            try:
                with open(f"/proc/{pid}/smaps", "rb") as smaps:
                    if any(row.startswith(b"VmFlags:") and b" um" in row for row in smaps):
                        return True
            except OSError:
                continue
        return False

    def end(self):
        """Ends it, with all that it has made."""
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            for pid in [*below(self.process.pid), self.process.pid]:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


def below(ancestor):
    """The pids of all that descend from a process."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
            children.setdefault(parent, []).append(int(name))
    found, left = [], [ancestor]
    while left:
        found += children.get(left[-1], [])
        left += children.pop(left.pop(), [])
    return found
