#!/usr/bin/env python3
"""Makes the golden losses in this folder with PyTorch on the CPU: make_golden.py [simplecnn] [resnet18] [resnet20_lora]

Nothing but losses is stored: initial weights, images and labels follow from a hash of a name and an index in integer
arithmetic, which tests/test_golden_on_backend.c repeats. Layouts are Convoy's: filters K,R,S,C; images N,H,W,C; the
inputs of a linear layer in the order H,W,C. Weight decay applies to filters and matrices only.

Each file holds, for each step, the mean loss before the update; and the mean loss and the count of correct predictions
of the first 128 images in evaluation mode after some of the steps. All in single precision; all but resnet18 also in
double, which shows how far rounding alone carries a run away (PyTorch's convolution in double is too slow for
resnet18). resnet18's rate is small on purpose: one rounding, 6e-8 of the initial filters, grows to 1e-5 of the loss
after five steps and 8e-4 after twenty; at higher rates faster.

resnet20_lora trains low-rank adapters (Hu et al., 2021) and the last layer; all else is frozen, batchnorms in evaluation
mode. Its adapters' B begins as A does, and not as zero, so that all gradients count from the first step on.
"""
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = 20
EVAL_AFTER = (5, 20)
EVAL_COUNT = 128
SETUP = {
    "simplecnn": dict(batch=128, gain=1.0, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
    "resnet18": dict(batch=32, gain=6.0, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),
    "resnet20_lora": dict(batch=32, gain=2.0, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
}


def words(name, count):
    """uint32 words 0..count-1 of a name's sequence: the finalizer of MurmurHash3 over FNV-1a(name) + index * odd."""
    base = 2166136261
    for byte in name.encode():
        base = (base ^ byte) * 16777619 & 0xFFFFFFFF
    with np.errstate(over="ignore"):
        h = np.uint32(base) + np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    return h


def uniform(name, count):
    """float32 in [-1, 1): 24 bits of each word."""
    return (((words(name, count) >> np.uint32(8)).astype(np.int32) - (1 << 23)) / np.float32(1 << 23)).astype(np.float32)


def images(count):
    """Noise over a pattern of the label's: N,H,W,C bytes, and the labels."""
    labels = words("labels", count) % np.uint32(10)
    noise = words("images", count * 32 * 32 * 3).reshape(count, 32, 32, 3) >> np.uint32(25)
    pattern = words("patterns", 10 * 4 * 4 * 3).reshape(10, 4, 4, 3) >> np.uint32(27)
    pattern = pattern.repeat(8, axis=1).repeat(8, axis=2)
    return (noise + pattern[labels]).astype(np.uint8), labels.astype(np.int64)


class SimpleCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3)
        self.fc = nn.Linear(32 * 15 * 15, 10)

    def forward(self, x):
        return self.fc(torch.flatten(F.max_pool2d(F.relu(self.conv1(x)), 2), 1))


class BasicBlock(nn.Module):
    def __init__(self, inputs, filters, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.downsample = None
        if stride != 1 or inputs != filters:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, x):
        skip = x if self.downsample is None else self.downsample(x)
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + skip)


class ResNet(nn.Module):
    """torchvision's, by its names, with the CIFAR stem: 3x3, stride 1, no max-pool."""

    def __init__(self, widths, depth):
        super().__init__()
        inputs = widths[0]
        self.conv1 = nn.Conv2d(3, inputs, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.stages = len(widths)
        for stage, filters in enumerate(widths):
            blocks = []
            for block in range(depth):
                blocks.append(BasicBlock(inputs, filters, 2 if stage and not block else 1))
                inputs = filters
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Adapted(nn.Conv2d):
    """A convolution with a low-rank adapter: W x + alpha / rank B (A x)."""

    RANK, ALPHA = 4, 2.0

    def __init__(self, of):
        super().__init__(of.in_channels, of.out_channels, of.kernel_size, of.stride, of.padding, bias=False)
        self.lora_A = nn.Conv2d(of.in_channels, self.RANK, of.kernel_size, of.stride, of.padding, bias=False)
        self.lora_B = nn.Conv2d(self.RANK, of.out_channels, 1, bias=False)

    def forward(self, x):
        return super().forward(x) + self.ALPHA / self.RANK * self.lora_B(self.lora_A(x))


def adapt(net):
    """Adapters beside all convolutions; only they and the last layer are trained."""
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Conv2d):
                setattr(module, name, Adapted(child))
    for name, parameter in net.named_parameters():
        parameter.requires_grad = "lora_" in name or name.startswith("fc.")
    return net


def build(model):
    if model == "simplecnn":
        return SimpleCNN()
    return ResNet((64, 128, 256, 512), 2) if model == "resnet18" else adapt(ResNet((16, 32, 64), 3))


def training_mode(net, model):
    """As train(); frozen batchnorms stay in evaluation mode."""
    net.train()
    for module in net.modules():
        if model == "resnet20_lora" and isinstance(module, nn.BatchNorm2d):
            module.eval()


def initialise(net, model):
    """Filters: uniform in +-sqrt(gain / inputs); matrices and biases: +-sqrt(1 / inputs); batchnorm: 1 + u/4 and u/4."""
    with torch.no_grad():
        for name, module in net.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                for part, one in (("weight", 1), ("bias", 0)):
                    value = np.float32(one) + uniform(f"{name}.{part}", module.num_features) * np.float32(0.25)
                    getattr(module, part).copy_(torch.from_numpy(value))
            elif isinstance(module, (nn.Conv2d, nn.Linear)):
                weight = module.weight
                gain = SETUP[model]["gain"] if weight.dim() == 4 else 1.0
                bound = np.float32(np.sqrt(gain / weight[0].numel()))
                value = torch.from_numpy(uniform(f"{name}.weight", weight.numel()) * bound)
                if weight.dim() == 4:
                    k, c, r, s = weight.shape
                    value = value.reshape(k, r, s, c).permute(0, 3, 1, 2)
                elif model == "simplecnn":
                    value = value.reshape(10, 15, 15, 32).permute(0, 3, 1, 2).reshape(10, -1)
                else:
                    value = value.reshape(weight.shape)
                weight.copy_(value)
                if module.bias is not None:
                    module.bias.copy_(torch.from_numpy(uniform(f"{name}.bias", module.bias.numel()) * bound))


def run(model, dtype):
    """[loss of each step], {step: (evaluation loss, correct)}."""
    setup = SETUP[model]
    net = build(model)
    initialise(net, model)
    net = net.to(dtype)
    training_mode(net, model)
    if model == "simplecnn":
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    else:
        decayed = [p for p in net.parameters() if p.requires_grad and p.dim() > 1]
        others = [p for p in net.parameters() if p.requires_grad and p.dim() == 1]
        groups = [dict(params=decayed, weight_decay=0.1), dict(params=others, weight_decay=0.0)]
        optimizer = torch.optim.SGD(groups, lr=0.002, momentum=0.9, nesterov=True)
    batch = setup["batch"]
    x, y = images(max(STEPS * batch, EVAL_COUNT))
    mean, std = (torch.tensor(setup[k], dtype=dtype).view(1, 3, 1, 1) for k in ("mean", "std"))
    x = (torch.from_numpy(x).permute(0, 3, 1, 2).to(dtype) / 255 - mean) / std
    y = torch.from_numpy(y)
    losses, evaluations = [], {}
    for step in range(STEPS):
        part = slice(step * batch, (step + 1) * batch)
        loss = F.cross_entropy(net(x[part]), y[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step + 1 in EVAL_AFTER:
            net.eval()
            with torch.no_grad():
                logits = net(x[:EVAL_COUNT])
                correct = int((logits.argmax(1) == y[:EVAL_COUNT]).sum())
                evaluations[step + 1] = (F.cross_entropy(logits, y[:EVAL_COUNT]).item(), correct)
            training_mode(net, model)
    return losses, evaluations


def line(*words):
    return " ".join(f"{w:.9g}" if isinstance(w, float) else str(w) for w in words) + "\n"


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    for model in sys.argv[1:] or list(SETUP):
        single, evaluations = run(model, torch.float32)
        double, exact = run(model, torch.float64) if model != "resnet18" else (None, None)
        with open(os.path.join(here, model + ".txt"), "w") as out:
            out.write(f"# {model}: made by make_golden.py with PyTorch {torch.__version__.split('+')[0]} on the CPU\n")
            out.write("# step N LOSS [LOSS_IN_DOUBLE] | eval AFTER_STEP LOSS CORRECT [LOSS_IN_DOUBLE CORRECT]\n")
            for step in range(STEPS):
                out.write(line("step", step + 1, single[step], *(double[step : step + 1] if double else ())))
                if step + 1 in evaluations:
                    out.write(line("eval", step + 1, *evaluations[step + 1], *(exact[step + 1] if exact else ())))


if __name__ == "__main__":
    main()
