"""T6, a PyTorch program, with the allocator that its argument names: default, expandable or async.

Prints what the driver has lost in each phase, as t6_phase.h does for the other programs. At most 512 MiB at a time, and
what PyTorch adds. Exit status 77 with a last line "skip WHY": it could not run here.
"""

import ctypes
import gc
import os
import sys

MIB = 1 << 20
CONFIGURATIONS = {"default": "", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
# How the hooks must class what each allocator takes.
KINDS = {"default": "device", "expandable": "vmm", "async": "pool"}
# Segments of 20 MiB, chunks of 32 MiB of a pool, and what graphs and libraries load.
SLACK = 48 * MIB


def skip(why):
    print(f"skip {why}", flush=True)
    sys.exit(77)


def configure(allocator):
    """Before torch is imported. Both names of the variable: which one counts depends on the version."""
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        os.environ.pop(name, None)
        if CONFIGURATIONS[allocator]:
            os.environ[name] = CONFIGURATIONS[allocator]


def import_torch():
    try:
        import torch
    except ImportError as error:
        skip(f"no torch: {error}")
    if not torch.cuda.is_available():
        skip("torch sees no GPU")
    return torch


class Phases:
    def __init__(self, torch):
        self.torch = torch
        self.ask = getattr(ctypes.CDLL(None), "t6_report", None)

    def free_bytes(self):
        self.torch.cuda.synchronize()
        return self.torch.cuda.mem_get_info()[0]

    def release(self):
        """Gives the driver back all that is cached."""
        gc.collect()
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()

    def report(self, what):
        if self.ask is not None:
            self.ask(what.encode())

    def overhead(self, name, taken):
        print(f"overhead {name} taken {taken}", flush=True)

    def compare(self, name, when, before, kept, kind, asked):
        taken = before - self.free_bytes()
        self.report(name + when)
        print(
            f"phase {name} from .before to {when} taken {taken} slack {SLACK} kept {kept} kind {kind} asked {asked}",
            flush=True,
        )

    def run(self, name, kind, asked, allocate):
        """`allocate` returns what keeps the memory. Twice, and the second time is compared: see t6_phase.h."""
        try:
            begun = self.free_bytes()
            self.report(f"{name}.begun")
            allocate()
            self.release()
            before = self.free_bytes()
            self.report(f"{name}.before")
            self.overhead(name, begun - before)
            kept = max(0, begun - before)
            held = allocate()
            self.compare(name, ".during", before, kept, kind, asked)
            del held
            self.release()
            self.compare(name, ".freed", before, kept, "none", 0)
        except RuntimeError as error:
            print(f"broken {name} {str(error).splitlines()[0]}", flush=True)


def tensors(torch):
    return [torch.full((64 * MIB,), 1, dtype=torch.uint8, device="cuda") for _ in range(8)]


def small_tensors(torch):
    return [torch.zeros(16384, dtype=torch.uint8, device="cuda") for _ in range(8192)]


def product(torch):
    left, right = (torch.ones(8192, 4096, dtype=torch.float16, device="cuda") for _ in range(2))
    return left, right, left @ right.t()


def pinned(torch):
    return torch.ones(64 * MIB, dtype=torch.uint8, pin_memory=True)


def graph(torch):
    """Captured and replayed: what it allocates is kept for the graph."""
    source = torch.ones(16 * MIB, dtype=torch.float32, device="cuda")
    source * 2  # Loads its kernel, which a capture may not.
    captured = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(captured):
        target = source * 2
    captured.replay()
    torch.cuda.synchronize()
    return source, target, captured


def main():
    allocator = sys.argv[1] if len(sys.argv) == 2 else ""
    if allocator not in CONFIGURATIONS:
        sys.exit("usage: t6_torch.py default|expandable|async")
    configure(allocator)
    torch = import_torch()
    phases = Phases(torch)
    torch.zeros(1, device="cuda")
    print(f"# torch {torch.__version__}, allocator {torch.cuda.get_allocator_backend()}", flush=True)
    free, total = torch.cuda.mem_get_info()
    phases.overhead("context-and-others", total - free)

    kind = KINDS[allocator]
    phases.run("tensors", kind, 512 * MIB, lambda: tensors(torch))
    # A part of the first segment may be there from before.
    phases.run("small-tensors", kind, 124 * MIB, lambda: small_tensors(torch))
    phases.run("product", kind, 256 * MIB, lambda: product(torch))
    # The block of the first time is still cached, so nothing is asked of the driver.
    phases.run("pinned", "host", 0, lambda: pinned(torch))
    # The source, and in the pool of the graph the target. With the asynchronous allocator that is a node of the graph.
    phases.run("graph", kind, 64 * MIB if allocator == "async" else 128 * MIB, lambda: graph(torch))
    print("done", flush=True)


main()
