"""torch on the CPU: a small network learns, with a fixed seed; the loss and all weights depend on every step before."""

import hashlib
import os
import sys
import time

import torch

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
# As in victim.h: where a test wants the program to wait, and for which file.
WAITS_AT = int(os.environ.get("CKPT_VICTIM_WAITS_AT", "0"))
WAITS_FOR = os.environ.get("CKPT_VICTIM_WAITS_FOR", "/")


def digest_of(model):
    digest = hashlib.sha256()
    for weights in model.parameters():
        digest.update(weights.detach().numpy().tobytes())
    return digest.hexdigest()[:32]


def main():
    torch.manual_seed(4711)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.1),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 16 * 16, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    print("ready", flush=True)
    for step in range(1, STEPS + 1):
        images = torch.randn(64, 1, 16, 16)
        labels = (images.sum(dim=(1, 2, 3)) > 0).long() + torch.randint(0, 2, (64,))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step} {loss.item().hex()} {digest_of(model)}", flush=True)
        while step == WAITS_AT and not os.path.exists(WAITS_FOR):
            time.sleep(0.001)
        time.sleep(0.01)
    with open("weights", "wb") as file:
        for weights in model.parameters():
            weights.detach().numpy().tofile(file)
    print("verified", flush=True)
    sys.exit(9)


main()
