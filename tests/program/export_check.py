"""What test_export.sh looks at with the programs that read exported models.

export_check.py images SHARD FOLDER             writes a shard's images as FOLDER/NNNNN-LABEL.png (no reader needed)
export_check.py same JSON JSON                  the same files, classes and, but for rounding, logits
export_check.py onnx FILE SHARD JSON            onnx.checker, ONNX Runtime: the same as JSON's lines (convoy predict --json)
export_check.py safetensors FILE CHECKPOINT     names, shapes and values are the checkpoint's, in PyTorch's layout
export_check.py torch FILE SHARD JSON           loads into torchvision's resnet18 with strict=True: the same logits
export_check.py make FILE SHARD JSON            a resnet18 that torchvision made, its weights as FILE, its logits as JSON
export_check.py damage FILE FOLDER              variants of a safetensors file that no reader may take
export_check.py resize FILE PNG                 PNG at twice the size, by Pillow, with its pixels resampled back to FILE
"""
import json
import struct
import sys
import zlib

import numpy as np

TOLERANCE = 1e-4


def shard(path):
    import h5py

    with h5py.File(path) as f:
        return f["images"][:], f["labels"][:]


def scaled(images):
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).astype(np.float32) / np.float32(255)


def write_png(path, image):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = image.shape
    rows = b"".join(b"\0" + image[y].tobytes() for y in range(height))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)))
        f.write(chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def images(path, folder):
    for i, (image, label) in enumerate(zip(*shard(path))):
        write_png(f"{folder}/{i:05d}-{label}.png", image)


def predictions(path):
    return np.array([json.loads(line)["logits"] for line in open(path)], dtype=np.float32)


def compare(what, logits, expected):
    assert logits.shape == expected.shape, (logits.shape, expected.shape)
    assert expected.std() > 0.1, "the logits are all alike"
    different = int((logits.argmax(1) != expected.argmax(1)).sum())
    farthest = float(np.abs(logits - expected).max())
    print(f"{what}: {len(logits)} images, {different} other classes, logits within {farthest:.2g}")
    assert different == 0 and farthest <= TOLERANCE


def same(lines, expected):
    first, second = ([json.loads(line) for line in open(path)] for path in (lines, expected))
    if "file" in second[0]:
        assert [(x["file"], x["class"]) for x in first] == [(x["file"], x["class"]) for x in second]
    compare("predictions", predictions(lines), predictions(expected))


def check_onnx(path, data, lines):
    import onnx
    import onnxruntime

    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version >= 17
    meta = {entry.key: entry.value for entry in model.metadata_props}
    expected = predictions(lines)
    assert len(json.loads(meta["classes"])) == expected.shape[1], meta
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (put,) = session.get_inputs()
    assert isinstance(put.shape[0], str), "the batch is not free"
    pictures = scaled(shard(data)[0])
    for size in (1, 7, 500):  # the batch is free
        part = pictures if size == 500 else pictures[:size]
        logits = np.concatenate([session.run(None, {put.name: part[i : i + size]})[0] for i in range(0, len(part), size)])
        compare(f"ONNX Runtime, batch {size}", logits, expected[: len(part)])


def check_safetensors(path, checkpoint):
    import h5py
    from safetensors.numpy import load_file

    arrays = load_file(path)
    with h5py.File(checkpoint) as f:
        mine = {name: f[group][name][:] for group in ("parameters", "statistics") if group in f for name in f[group]}
        step = f["progress"].attrs["step"]
    counters = {name for name in arrays if name.endswith(".num_batches_tracked")}
    assert counters == {n.replace("running_mean", "num_batches_tracked") for n in mine if n.endswith("running_mean")}
    assert all(arrays[name] == step and arrays[name].shape == () for name in counters)
    assert set(arrays) - counters == set(mine), set(arrays) ^ set(mine)
    for name, value in mine.items():
        if value.ndim == 4:
            value = value.transpose(0, 3, 1, 2)
        elif value.ndim == 2 and value.shape[1] == 32 * 15 * 15:  # simplecnn: from H,W,C to C,H,W
            value = value.reshape(-1, 15, 15, 32).transpose(0, 3, 1, 2).reshape(value.shape)
        assert arrays[name].shape == value.shape and (arrays[name] == value).all(), name
    print(f"safetensors: {len(mine)} arrays and {len(counters)} counters")


def cifar_resnet18(classes):
    import torch
    import torchvision

    net = torchvision.models.resnet18(num_classes=classes)
    net.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    net.maxpool = torch.nn.Identity()
    return net


def make(path, data, lines):
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)
    net = cifar_resnet18(7)
    for name, array in net.state_dict().items():
        if name.endswith("running_mean"):
            array.uniform_(-0.5, 0.5)
        elif name.endswith("running_var"):
            array.uniform_(0.5, 2)
    net.eval()
    save_file(net.state_dict(), path)
    with torch.no_grad():
        logits = net((torch.from_numpy(scaled(shard(data)[0])) - 0.5) / 0.25).numpy()
    with open(lines, "w") as f:
        for row in logits:
            f.write(json.dumps({"logits": row.tolist()}) + "\n")


def damage(path, folder):
    whole = open(path, "rb").read()
    length = struct.unpack("<Q", whole[:8])[0]
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]

    def variant(name, header, data=data):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        with open(f"{folder}/{name}.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data)

    def entry(name, **change):
        variant(name, {**header, "fc.weight": {**header["fc.weight"], **change}})

    begin, end = header["fc.weight"]["data_offsets"]
    entry("offset-behind", data_offsets=[begin + 2**40, end + 2**40])
    entry("offset-negative", data_offsets=[-4, end - begin - 4])
    entry("offset-swapped", data_offsets=[end, begin])
    entry("offset-short", data_offsets=[begin, end - 4])
    entry("offset-text", data_offsets="none")
    entry("shape-negative", shape=[-10, 7200])
    entry("shape-other", shape=[7200, 10])
    entry("shape-huge", shape=[2**60, 2**60])
    entry("dtype-other", dtype="I8")
    variant("array-missing", {k: v for k, v in header.items() if k != "conv1.weight"})
    variant("header-list", b"[]")
    variant("header-cut", whole[8 : 8 + length // 2])
    variant("data-cut", header, data[:-1000])
    for name, content in {
        "empty": b"",
        "prefix": whole[:5],
        "length": struct.pack("<Q", 2**63) + whole[8:],
        "length-behind": struct.pack("<Q", len(whole)) + whole[8:],
    }.items():
        with open(f"{folder}/{name}.safetensors", "wb") as f:
            f.write(content)


def check_torch(path, data, lines):
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file

    with safe_open(path, "pt") as f:
        meta = f.metadata()
    net = cifar_resnet18(len(json.loads(meta["classes"])))
    net.load_state_dict(load_file(path), strict=True)
    net.eval()
    mean, std = (np.array([float(x) for x in meta[k].split(",")], dtype=np.float32) for k in ("mean", "std"))
    pictures = (scaled(shard(data)[0]) - mean[:, None, None]) / std[:, None, None]
    with torch.no_grad():
        compare("torchvision", net(torch.from_numpy(pictures)).numpy(), predictions(lines))


def resize(path, out):
    from PIL import Image

    picture = Image.open(path)
    big = picture.resize((70, 50), Image.Resampling.BICUBIC)
    big.save(out + "-big.png")
    big.resize(picture.size, Image.Resampling.BILINEAR).save(out + "-small.png")


if __name__ == "__main__":
    command = {
        "images": images,
        "same": same,
        "onnx": check_onnx,
        "safetensors": check_safetensors,
        "torch": check_torch,
        "make": make,
        "damage": damage,
        "resize": resize,
    }
    command[sys.argv[1]](*sys.argv[2:])
