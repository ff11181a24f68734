"""Trains a small transformer on sequences that it can learn, the same each time: prints the loss of each step, all of its bits.

transformer.py STEPS PAUSE_US [WORKERS]

With WORKERS, so many processes of a DataLoader make the sequences; they are forked when the model is on the device.
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


class Sequences(torch.utils.data.Dataset):
    """One follows from its number."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        begin = torch.randint(WORDS, (1,), generator=torch.Generator().manual_seed(number))
        return (begin + torch.arange(LENGTH + 1) * (1 + begin % 3)) % WORDS


def batches(steps, workers):
    if workers:
        yield from torch.utils.data.DataLoader(Sequences(steps * BATCH), BATCH, num_workers=workers, pin_memory=True)
    for _ in range(0 if workers else steps):
        begin = torch.randint(WORDS, (BATCH, 1))
        yield (begin + torch.arange(LENGTH + 1) * (1 + begin % 3)) % WORDS


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
    steps, pause_us, workers = [int(word) for word in [*sys.argv[1:], 0][:3]]
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    for way in ("flash", "mem_efficient", "cudnn"):  # of attention, whose gradients are not the same each time
        getattr(torch.backends.cuda, f"enable_{way}_sdp")(False)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, words in enumerate(batches(steps, workers), 1):
        words = words.cuda()
        found = model(words[:, :-1])
        loss = torch.nn.functional.cross_entropy(found.reshape(-1, WORDS), words[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, float(loss).hex(), flush=True)
        pause(step, pause_us)


main()
