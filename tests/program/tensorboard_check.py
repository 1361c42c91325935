"""What test_tensorboard.sh looks at with TensorBoard's own reader.

tensorboard_check.py names DATA                gives the shards' classes names
tensorboard_check.py scalars DIR RUN           every column of loss.csv and epochs.csv: the same steps, the same floats
tensorboard_check.py first DIR STEP            the newest file's first value is of STEP
tensorboard_check.py text DIR RUN TIMES        the text `run` stands there TIMES times, the last with run.json's options
tensorboard_check.py examples DIR SHARD OUT    the images are the shard's, framed by the table; OUT/NN.png and OUT/table.txt
tensorboard_check.py served DIR RUN            TensorBoard itself, started on DIR, answers with loss.csv's losses
"""
import csv
import glob
import io
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import numpy as np

LOSS = ("loss", "lr", "images_per_s")
EPOCHS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "images_per_s")


def column(path, name):
    with open(path) as f:
        return [(int(row["step"]), np.float32(row[name])) for row in csv.DictReader(f) if row[name]]


def accumulated(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(folder, size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    events.Reload()
    return events


def scalars(folder, run):
    events, compared = accumulated(folder), 0
    wanted = {f"train/{name}": column(f"{run}/loss.csv", name) for name in LOSS}
    wanted.update({f"epoch/{name}": column(f"{run}/epochs.csv", name) for name in EPOCHS})
    wanted = {tag: rows for tag, rows in wanted.items() if rows}
    assert sorted(events.Tags()["scalars"]) == sorted(wanted), (events.Tags()["scalars"], sorted(wanted))
    for tag, rows in wanted.items():
        found = [(e.step, np.float32(e.value)) for e in events.Scalars(tag)]
        assert found == rows, (tag, found, rows)
        compared += len(rows)
    print(f"{len(wanted)} tags, {compared} values")


def first(folder, step):
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    newest = sorted(glob.glob(f"{folder}/events.out.tfevents.*"))[-1]
    events = list(LegacyEventFileLoader(newest).Load())
    assert events[0].file_version == "brain.Event:2"
    assert events[1].session_log.status == events[1].session_log.START and events[1].step == int(step), events[1]
    values = [e.step for e in events for v in e.summary.value if v.tag == "train/loss"]
    assert values[0] == int(step), values


def text(folder, run, times):
    found = accumulated(folder).Tensors("run")
    assert len(found) == int(times), [e.step for e in found]
    (page,) = found[-1].tensor_proto.string_val
    options = json.loads(page.decode())["options"]  # indentation is nothing to JSON
    with open(f"{run}/run.json") as f:
        assert options == json.load(f)["options"]


def names(data):
    import h5py

    for path in glob.glob(f"{data}/*.h5"):
        with h5py.File(path, "r+") as f:
            del f.attrs["classes"]
            f.attrs["classes"] = np.array([b"class %d <&>|\xff%d" % (i, i) for i in range(10)])  # no UTF-8


def examples(folder, shard, out):
    import h5py
    from PIL import Image

    events = accumulated(folder)
    (page,) = events.Tensors("examples/predictions")[-1].tensor_proto.string_val
    rows = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in page.decode().splitlines()[2:]]
    with h5py.File(shard) as f:
        images, labels = f["images"][:], f["labels"][:]
        classes = [name.replace(b"\xff", b"?").decode() for name in f.attrs["classes"]]
    assert len(rows) == 25 and len({row[1] for row in rows}) == 25, rows
    os.makedirs(out)
    frames = set()
    for name, index, true, predicted, probability in rows:
        (event,) = events.Images(f"examples/{name}")
        picture = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)))
        assert (event.height, event.width) == picture.shape[:2]
        inside, frame = picture[2:-2, 2:-2], picture[0, 0]
        assert (inside == images[int(index)]).all() and true == classes[labels[int(index)]], name
        assert (picture[:2] == frame).all() and (picture[:, -2:] == frame).all()
        assert (frame[1] > frame[0]) == (true == predicted), (name, frame)
        frames.add(tuple(frame))
        Image.fromarray(inside).save(f"{out}/{name}.png")
    with open(f"{out}/table.txt", "w") as f:
        f.writelines(f"{name};{predicted};{probability}\n" for name, index, true, predicted, probability in rows)
    print(f"{len(rows)} images, frames {sorted(map(tuple, frames))}")


def served(folder, run):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = f"http://127.0.0.1:{port}/data/plugin/scalars/"
    with open(f"{folder}.log", "w") as log:
        child = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", str(port)],
                                 stdout=log, stderr=log)
    wanted = [(step, float(value)) for step, value in column(f"{run}/loss.csv", "loss")]
    found = None
    try:
        for _ in range(120):
            try:
                tags = json.load(urllib.request.urlopen(base + "tags", timeout=10))
                if tags:
                    (name,) = tags
                    query = urllib.parse.urlencode({"run": name, "tag": "train/loss"})
                    found = [(step, value) for _, step, value in json.load(urllib.request.urlopen(base + "scalars?" + query, timeout=10))]
                    if found == wanted:
                        break
            except OSError:
                assert child.poll() is None, open(f"{folder}.log").read()
            time.sleep(0.5)
    finally:
        child.terminate()
        child.wait()
    assert found == wanted, (found, wanted)
    print(f"{len(found)} points")


if __name__ == "__main__":
    {"scalars": scalars, "names": names, "first": first, "text": text, "examples": examples, "served": served}[sys.argv[1]](*sys.argv[2:])
