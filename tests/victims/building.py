"""make -j4 of a project in C: compilers that are born and end all the time, and what they have made in the end."""

import hashlib
import os
import subprocess
import time

import steps

MAKEFILE = """objects = $(patsubst %.c,%.o,$(wildcard *.c))
program: $(objects)
	gcc -o $@ $(sort $(objects))
%.o: %.c
	gcc -O2 -c -o making-$@ $< && mv making-$@ $@
"""


def function(file, number):
    return (
        f"int f_{file}_{number}(int x) {{ int s = 0; for (int i = 0; i < x; i++) s += i * {number} ^ (s >> {number % 7}); "
        f"return s + printf(\"%d\", s); }}\n"
    )


os.makedirs("project", exist_ok=True)
for file in range(1, steps.STEPS):
    with open(f"project/f{file}.c", "w") as source:
        source.write("#include <stdio.h>\n" + "".join(function(file, number) for number in range(150)))
with open("project/main.c", "w") as source:
    source.write("int main(void) { return 0; }\n")
with open("project/Makefile", "w") as makefile:
    makefile.write(MAKEFILE)
print("ready", flush=True)
# What a compiler leaves for the assembler lies in a file that nobody has open in between: in the directory that is captured.
with open("log", "wb") as log:
    make = subprocess.Popen(["make", "-j4"], cwd="project", env=dict(os.environ, TMPDIR="."), stdout=log, stderr=log)
for number in range(1, steps.STEPS + 1):
    while sum(name.endswith(".o") and name[0] != "m" or name == "main.o" for name in os.listdir("project")) < number:
        assert make.poll() in (None, 0)
        time.sleep(0.005)
    steps.step(number)
assert make.wait() == 0
with open("project/program", "rb") as program:
    print("program", hashlib.sha1(program.read()).hexdigest(), flush=True)
steps.over(make, 0)
