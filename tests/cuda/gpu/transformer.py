"""Trains a small transformer on sequences that it can learn, the same each time: prints the loss of each step, all of its bits.

transformer.py STEPS PAUSE_US
"""

import os
import sys
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # or cuBLAS is not deterministic

import torch  # noqa: E402

WORDS, LENGTH, BATCH, WIDTH = 64, 32, 16, 128


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.places = torch.nn.Embedding(LENGTH, WIDTH)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.out = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        places = torch.arange(LENGTH, device=words.device)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH, device=words.device)
        return self.out(self.layers(self.words(words) + self.places(places), mask=mask))


def pause(step, pause_us):
    """As tests/victims/cuda/paced.h has it."""
    place, sign = os.environ.get("CKPT_VICTIM_WAITS_AT"), os.environ.get("CKPT_VICTIM_WAITS_FOR")
    if place is None or sign is None:
        time.sleep(pause_us / 1e6)
        return
    while step == int(place) and not os.path.exists(sign):
        time.sleep(0.001)
    if not os.path.exists(sign):
        time.sleep(pause_us / 1e6)


def main():
    steps, pause_us = int(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    for way in ("flash", "mem_efficient", "cudnn"):  # of attention, whose gradients are not the same each time
        getattr(torch.backends.cuda, f"enable_{way}_sdp")(False)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        begin = torch.randint(WORDS, (BATCH, 1))
        words = ((begin + torch.arange(LENGTH + 1) * (1 + begin % 3)) % WORDS).cuda()
        found = model(words[:, :-1])
        loss = torch.nn.functional.cross_entropy(found.reshape(-1, WORDS), words[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, float(loss).hex(), flush=True)
        pause(step, pause_us)


main()
