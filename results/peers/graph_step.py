#!/usr/bin/env python3
"""The strongest PyTorch peer on one GPU: the whole training step captured as one CUDA graph (no DDP), eager or compiled model.

graph_step.py --net resnet18|simplecnn --bs 512 [--compile] [--fp32] [--profile]
Prints images/s of graph replays (median of 5 windows); with --profile also the summed GPU kernel time of one eager step and its largest kernels.
Random bytes as images (timing only); ResNet-18 with the CIFAR stem, SGD; SimpleCNN with Adam.
"""

import argparse, time
import torch, torch.nn as nn, torch.nn.functional as F, torchvision

p = argparse.ArgumentParser()
p.add_argument("--net", default="resnet18")
p.add_argument("--bs", type=int, default=512)
p.add_argument("--compile", action="store_true")
p.add_argument("--fp32", action="store_true")
p.add_argument("--profile", action="store_true")
a = p.parse_args()
torch.backends.cudnn.benchmark = True
if a.net == "resnet18":
    net = torchvision.models.resnet18(num_classes=10)
    net.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    net.maxpool = nn.Identity()
else:
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(7200, 10))
net = net.cuda().to(memory_format=torch.channels_last)
run = torch.compile(net) if a.compile else net
opt = (
    torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)
    if a.net == "resnet18"
    else torch.optim.Adam(net.parameters(), lr=torch.tensor(1e-3, device="cuda"), fused=True, capturable=True)
)
x = torch.randint(0, 256, (a.bs, 3, 32, 32), dtype=torch.uint8, device="cuda").contiguous(
    memory_format=torch.channels_last
)
y = torch.randint(0, 10, (a.bs,), device="cuda")


def step():
    b = x.float().div_(255).sub_(0.47).div_(0.25)
    with torch.autocast("cuda", torch.bfloat16, enabled=not a.fp32, cache_enabled=False):
        loss = F.cross_entropy(run(b), y)
    opt.zero_grad(set_to_none=False) if opt.param_groups[0]["params"][0].grad is not None else None
    loss.backward()
    opt.step()
    return loss


s = torch.cuda.Stream()
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s):
    for _ in range(6):
        step()
torch.cuda.current_stream().wait_stream(s)
torch.cuda.synchronize()
if a.profile:
    from torch.profiler import profile, ProfilerActivity

    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        step()
        torch.cuda.synchronize()
    ks = {}
    for e in prof.events():
        if e.device_type == torch.autograd.DeviceType.CUDA:
            ks[e.name] = ks.get(e.name, 0) + e.device_time
    print(f"eager kernels: {sum(ks.values()) / 1e3:.2f} ms in {len(prof.events())} launches", flush=True)
    for n, t in sorted(ks.items(), key=lambda v: -v[1])[:14]:
        print(f"   {t:8.0f} us  {n[:110]}")
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g):
    loss = step()
for _ in range(10):
    g.replay()
torch.cuda.synchronize()
ts = []
for _ in range(5):
    t0 = time.time()
    n = 200 if a.net == "simplecnn" else 40
    for _ in range(n):
        g.replay()
    torch.cuda.synchronize()
    ts.append((time.time() - t0) / n)
t = sorted(ts)[2]
print(
    f"torch graph {a.net} {'fp32' if a.fp32 else 'bf16'}{' compiled' if a.compile else ''} bs={a.bs}: {1e3 * t:.3f} ms/step  {a.bs / t:.0f} images/s  loss {loss.item():.3f}",
    flush=True,
)
