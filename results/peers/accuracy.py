#!/usr/bin/env python3
"""What accuracy the peer's training reaches on the same images: the bar for Convoy's own runs.

accuracy.py DATADIR simplecnn|resnet18 --epochs E --seeds S   (one GPU; prints test accuracy and loss per seed)
simplecnn: Adam 1e-3, batch 128, mean = std = 0.5, no augmentation, fp32.
resnet18:  SGD Nesterov 0.9, lr 0.2 linear warm-up over 15 % of the steps then linear to 0, weight decay 5e-4, batch 512, flip + pad-4 crop, bf16.
"""

import argparse, os, time
import torch, torch.nn as nn, torch.nn.functional as F, torchvision

p = argparse.ArgumentParser()
p.add_argument("data")
p.add_argument("net")
p.add_argument("--epochs", type=int, default=2)
p.add_argument("--seeds", type=int, default=3)
a = p.parse_args()
tr, te = (torch.load(os.path.join(a.data, f"{s}.pt")) for s in ("train", "test"))
simple = a.net == "simplecnn"
m, s = ([0.5] * 3, [0.5] * 3) if simple else ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])
m, s = (torch.tensor(v, device="cuda").view(1, 3, 1, 1) for v in (m, s))


def prep(d):
    return ((d["images"].cuda().permute(0, 3, 1, 2).float() / 255 - m) / s).contiguous(
        memory_format=torch.channels_last
    ), d["labels"].cuda()


(x, y), (xt, yt) = prep(tr), prep(te)
bs = 128 if simple else 512
for seed in range(a.seeds):
    torch.manual_seed(seed)
    if simple:
        net = nn.Sequential(
            nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(7200, 10)
        ).cuda()
        opt = torch.optim.Adam(net.parameters())
    else:
        net = torchvision.models.resnet18(num_classes=10)
        net.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        net.maxpool = nn.Identity()
        net = net.cuda().to(memory_format=torch.channels_last)
        opt = torch.optim.SGD(
            net.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True
        )
    steps = a.epochs * (len(x) // bs)
    k = 0
    t0 = time.time()
    for e in range(a.epochs):
        perm = torch.randperm(len(x), device="cuda")
        for i in range(len(x) // bs):
            idx = perm[i * bs : (i + 1) * bs]
            b = x[idx]
            if not simple:
                b = torch.where((torch.rand(bs, device="cuda") < 0.5).view(-1, 1, 1, 1), b.flip(-1), b)
                b = F.pad(b, (4,) * 4)
                o = torch.randint(0, 9, (2, bs), device="cuda")
                r = torch.arange(32, device="cuda")
                n = torch.arange(bs, device="cuda")
                b = b.permute(0, 2, 3, 1)[
                    n[:, None, None], (o[0][:, None] + r)[:, :, None], (o[1][:, None] + r)[:, None, :]
                ].permute(0, 3, 1, 2)
                f = k / steps
                opt.param_groups[0]["lr"] = 0.2 * (f / 0.15 if f < 0.15 else (1 - f) / 0.85)
            with torch.autocast("cuda", torch.bfloat16, enabled=not simple):
                loss = F.cross_entropy(net(b), y[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            k += 1
    torch.cuda.synchronize()
    dt = time.time() - t0
    net.eval()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=not simple):
        out = torch.cat([net(c) for c in xt.split(1000)]).float()
    print(
        f"{a.net} seed {seed}: {a.epochs} epochs in {dt:.1f} s, test accuracy {(out.argmax(1) == yt).float().mean().item():.4f}, test loss {F.cross_entropy(out, yt).item():.4f}",
        flush=True,
    )
