#!/usr/bin/env python3
"""A well-tuned PyTorch peer: ResNet-18 (CIFAR stem) or SimpleCNN, data resident on the GPU, flip + crop on the GPU,
channels_last, bf16 autocast, fused SGD, DDP (static graph, bucket views); eager or compiled.

torchrun --nproc_per_node=N resnet_ddp.py DATADIR --net resnet18 --bs 512 --mode compile --steps 60
"""

import argparse, os, time
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist, torchvision
from torch.nn.parallel import DistributedDataParallel as DDP


def build(net):
    if net == "resnet18":
        m = torchvision.models.resnet18(num_classes=10)
        m.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        m.maxpool = nn.Identity()
        return m
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 15 * 15, 10)
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("data")
    p.add_argument("--net", default="resnet18")
    p.add_argument("--bs", type=int, default=512)
    p.add_argument("--mode", default="eager")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--fp32", action="store_true")
    a = p.parse_args()
    dist.init_process_group("nccl")
    lr = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(lr)
    ws = dist.get_world_size()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    d = torch.load(os.path.join(a.data, "train.pt"))
    x = d["images"].cuda().permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    y = d["labels"].cuda()
    model = build(a.net).cuda().to(memory_format=torch.channels_last)
    if a.mode != "eager":
        model = torch.compile(model, mode=None if a.mode == "compile" else a.mode)
    model = DDP(model, device_ids=[lr], gradient_as_bucket_view=True, static_graph=True)
    opt = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True
    )
    mean = torch.tensor([0.4914, 0.4822, 0.4465], device="cuda").view(1, 3, 1, 1)
    std = torch.tensor([0.2470, 0.2435, 0.2616], device="cuda").view(1, 3, 1, 1)

    def batch():
        i = torch.randint(0, len(x), (a.bs,), device="cuda")
        b = x[i].float().div_(255).sub_(mean).div_(std)
        b = torch.where((torch.rand(a.bs, device="cuda") < 0.5).view(-1, 1, 1, 1), b.flip(-1), b)
        s = torch.randint(0, 9, (2,)).tolist()
        b = F.pad(b, (4,) * 4)[:, :, s[0] : s[0] + 32, s[1] : s[1] + 32]
        return b.contiguous(memory_format=torch.channels_last), y[i]

    def step():
        b, t = batch()
        with torch.autocast("cuda", torch.bfloat16, enabled=not a.fp32):
            loss = F.cross_entropy(model(b), t)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss

    for _ in range(15):
        step()
    torch.cuda.synchronize()
    dist.barrier()
    ts = []
    for _ in range(5):
        t0 = time.time()
        for _ in range(a.steps):
            loss = step()
        torch.cuda.synchronize()
        ts.append((time.time() - t0) / a.steps)
    if dist.get_rank() == 0:
        t = sorted(ts)[2]
        print(
            f"torch {a.net} {'fp32' if a.fp32 else 'bf16'} {a.mode} ranks={ws} bs/rank={a.bs}: {1e3 * t:.2f} ms/step  {a.bs * ws / t:.0f} images/s  loss {loss.item():.3f}",
            flush=True,
        )
    dist.destroy_process_group()


main()
