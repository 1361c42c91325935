"""report_check.py PAGE RUN...: the page of `convoy report` is well formed, needs nothing else, and its curves are the runs' logs."""
import csv
import json
import re
import sys
from html.parser import HTMLParser

EMPTY = {"meta", "line", "circle", "polyline", "rect", "br"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.curves, self.bars, self.title, self.words = [], [], {}, "", []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        assert not {"src", "href"} & set(attributes), attributes
        assert tag != "script"
        if tag == "svg":
            self.title = attributes["aria-label"]
        if tag == "rect" and float(attributes["height"]) > 10:  # smaller ones are the key's
            rows = self.bars.setdefault(self.title, {})
            rows.setdefault(float(attributes["y"]), {})[attributes["class"]] = float(attributes["width"])
        if tag == "polyline":
            points = [tuple(map(float, p.split(","))) for p in attributes["points"].split()]
            self.curves.append((self.title, attributes["class"], points))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in EMPTY or self.open.pop() == tag, (tag, self.getpos())  # <line/> has no end of its own

    def handle_data(self, data):
        self.words.append(data)


def column(path, x, y):
    with open(path) as f:
        return [(float(row[x]), float(row[y])) for row in csv.DictReader(f) if row[y]]


def straight(values, places):
    """Places on the page are one linear function of the values, to the page's tenth of a unit."""
    low, high = min(values), max(values)
    if high == low:
        return max(places) - min(places) < 0.2
    a, b = places[values.index(low)], places[values.index(high)]
    return all(abs(a + (b - a) * (v - low) / (high - low) - p) < 0.2 for v, p in zip(values, places)) and a != b


text = open(sys.argv[1], encoding="utf-8").read()
assert not re.search(r"https?:|url\(|@import", text), "the page wants something from elsewhere"
page = Page()
page.feed(text)
assert page.open == [], page.open
expected = {
    "Training loss": ("loss.csv", "step", "loss"),
    "Test accuracy": ("epochs.csv", "epoch", "test_accuracy"),
    "Images per second": ("loss.csv", "step", "images_per_s"),
    "Learning rate": ("loss.csv", "step", "lr"),
}
for i, run in enumerate(sys.argv[2:]):
    assert run in page.words, run
    for title, (file, x, y) in expected.items():
        points = column(f"{run}/{file}", x, y)
        (curve,) = [c for t, name, c in page.curves if t == title and name == f"run{i}"]
        assert len(curve) == len(points) > 1, (title, len(curve), len(points))
        assert straight([p[0] for p in points], [c[0] for c in curve]), title
        assert straight([p[1] for p in points], [c[1] for c in curve]), title
        if max(p[1] for p in points) > min(p[1] for p in points):  # upwards on the page is a smaller number
            top = min(range(len(curve)), key=lambda k: curve[k][1])
            assert points[top][1] >= max(p[1] for p in points) * (1 - 1e-2) - 1e-9, title
# The bars: each run's session, its parts in proportion.
bars = [row for _, row in sorted(page.bars.get("Where the time went", {}).items())]
assert len(bars) == len(sys.argv) - 2, page.bars
for run, row in zip(sys.argv[2:], bars):
    with open(f"{run}/run.json") as f:
        result = json.load(f)["result"]
    wait, data = result["session_wait"] or 0, result["session_data"]
    parts = [result["session_steps"] - wait - data, wait, data, result["session_evaluation"], result["session_saves"], result["session_planning"]]
    length = sum(row.values())
    assert parts[0] > 0 and parts[3] > 0 and parts[4] > 0 and length > 500, (parts, row)
    for i, part in enumerate(parts):
        assert abs(row.get(f"part{i}", 0) - length * part / sum(parts)) < 0.1, (run, i, row, parts)
print(f"{len(sys.argv) - 2} runs, {len(page.curves)} curves")
