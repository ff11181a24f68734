"""A training loop whose weights a test reads: prints `step N ADDRESS BYTES SHA256` for each parameter, then `waiting`, and goes
on with every line that it is sent."""

import hashlib
import sys

import torch

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 1000):
    for _ in range(20):
        batch = torch.randn(256, 512, device="cuda")
        loss = torch.nn.functional.mse_loss(model(batch), batch.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    for parameter in model.parameters():
        content = parameter.detach().cpu().numpy().tobytes()
        print("step", step, parameter.data_ptr(), len(content), hashlib.sha256(content).hexdigest())
    print("waiting", flush=True)
    if not sys.stdin.readline():
        break
