#!/usr/bin/env python3
"""Decode the ImageFolder tar of CIFAR-10 JPEGs into train/test tensors and the official binary format.

usage: prep_data.py TAR.XZ OUTDIR
Writes OUTDIR/{train,test}.pt (uint8 N,32,32,3; labels) and OUTDIR/{data_batch_1..5,test_batch}.bin.
The order is a fixed permutation (seed 10), since the folder tree is sorted by class.
"""

import io, os, sys, tarfile
import numpy as np
from multiprocessing import Pool
from PIL import Image

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()


def decode(item):
    split, label, data = item
    return split, label, np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), np.uint8)


def main(tar, out):
    os.makedirs(out, exist_ok=True)
    items = []
    with tarfile.open(tar) as t:
        for m in t:
            if m.isfile() and m.name.endswith(".jpg"):
                split, cls = m.name.split("/")[-3:-1]
                items.append((split, CLASSES.index(cls), t.extractfile(m).read()))
    with Pool() as p:
        done = p.map(decode, items, chunksize=500)
    import torch

    for split, names in (
        ("train", ["data_batch_%d.bin" % i for i in range(1, 6)]),
        ("test", ["test_batch.bin"]),
    ):
        x = np.stack([d[2] for d in done if d[0] == split])
        y = np.array([d[1] for d in done if d[0] == split])
        perm = np.random.RandomState(10).permutation(len(x))
        x, y = x[perm], y[perm]
        torch.save(
            {"images": torch.from_numpy(x), "labels": torch.from_numpy(y).long(), "classes": CLASSES},
            f"{out}/{split}.pt",
        )
        rec = np.concatenate([y[:, None].astype(np.uint8), x.transpose(0, 3, 1, 2).reshape(len(x), -1)], 1)
        for i, n in enumerate(names):
            rec[i * 10000 : (i + 1) * 10000].tofile(f"{out}/{n}")
        print(
            split,
            x.shape,
            "mean",
            (x.reshape(-1, 3).mean(0) / 255).round(4),
            "std",
            (x.reshape(-1, 3).std(0) / 255).round(4),
        )


if __name__ == "__main__":
    main(*sys.argv[1:3])
