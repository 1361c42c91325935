#!/usr/bin/env python3
"""The CPU peer: PyTorch's training step on CPU threads, data in memory, channels_last, fp32.

cpu_step.py --net simplecnn|resnet20|resnet18 --bs 128 --threads 2 [--compile]
Prints images/s (median of 5 windows of about 2 s). SimpleCNN with Adam, the others with SGD Nesterov.
"""

import argparse, time
import torch, torch.nn as nn, torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--net", default="simplecnn")
p.add_argument("--bs", type=int, default=128)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--compile", action="store_true")
a = p.parse_args()
torch.set_num_threads(a.threads)


class Block(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 3, s, 1, bias=False)
        self.b1 = nn.BatchNorm2d(o)
        self.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(o)
        self.skip = (
            nn.Sequential()
            if s == 1 and i == o
            else nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))
        )

    def forward(self, x):
        return F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))) + self.skip(x))


def resnet(widths, blocks):
    layers = [nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    i = widths[0]
    for k, w in enumerate(widths):
        for j in range(blocks):
            layers.append(Block(i, w, 2 if k and not j else 1))
            i = w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 10))


net = {
    "simplecnn": lambda: nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(7200, 10)
    ),
    "resnet20": lambda: resnet((16, 32, 64), 3),
    "resnet18": lambda: resnet((64, 128, 256, 512), 2),
}[a.net]().to(memory_format=torch.channels_last)
opt = (
    torch.optim.Adam(net.parameters())
    if a.net == "simplecnn"
    else torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
)
run = torch.compile(net) if a.compile else net
x = torch.randn(4 * a.bs, 3, 32, 32).contiguous(memory_format=torch.channels_last)
y = torch.randint(0, 10, (4 * a.bs,))


def step(k):
    b = slice((k % 4) * a.bs, (k % 4 + 1) * a.bs)
    loss = F.cross_entropy(run(x[b]), y[b])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()


t0 = time.time()
[step(k) for k in range(3)]
per = (time.time() - t0) / 3
n = max(2, int(2 / per))
ts = []
for _ in range(5):
    t0 = time.time()
    [step(k) for k in range(n)]
    ts.append((time.time() - t0) / n)
print(
    f"torch {torch.__version__} cpu {a.net}{' compiled' if a.compile else ''} threads={a.threads} bs={a.bs}: {a.bs / sorted(ts)[2]:.0f} images/s",
    flush=True,
)
