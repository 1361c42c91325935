#!/usr/bin/env bash
# convoy report: one page whose curves are the runs' logs, which needs nothing else and names the differences; pictures by
# gnuplot. What a browser shows has a suite of its own.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
here=$(dirname "$0")
data=$WORK/data
set_of "$data" 256 64
train() { # OUT OPTION...
  local out=$1
  shift
  ranks 1 train --data "$data" --out "$out" --backend cpu --threads 1 --batch 32 --log-every 1 --epochs 3 "$@"
  expect 0 "a run"
}
strange="$WORK/b <&\"b>"
train "$WORK/a"
train "$strange" --lr 0.004 --schedule cosine
ranks 1 report "$WORK/a" "$strange" --out "$WORK/page.html"
expect 0 "a page of two runs"
"$CONVOY_PYTHON" "$here/report_check.py" "$WORK/page.html" "$WORK/a" "$strange" > "$WORK/out.txt" 2>&1 || fail "the page" "$WORK/out.txt"
sed -n '/Options that differ/,/<\/table>/s/.*class="name">\([^<]*\)<.*/\1/p' "$WORK/page.html" | sort > "$WORK/differ.txt"
[ "$(paste -sd' ' "$WORK/differ.txt")" = "lr schedule" ] || fail "the options that differ" "$WORK/differ.txt"
pass "two runs: their curves, and the options that differ"

ranks 1 report "$WORK/a" --out "$WORK/one.html"
expect 0 "a page of one run"
"$CONVOY_PYTHON" "$here/report_check.py" "$WORK/one.html" "$WORK/a" > "$WORK/out.txt" 2>&1 || fail "the page of one run" "$WORK/out.txt"
cp -r "$WORK/a" "$WORK/young"
rm "$WORK/young/epochs.csv"
head -1 "$WORK/a/loss.csv" > "$WORK/young/loss.csv"
printf '1,1,2.3' >> "$WORK/young/loss.csv" # a row that is being written
ranks 1 report "$WORK/young" --out "$WORK/young.html"
expect 0 "a run that has just begun"
cp -r "$WORK/a" "$WORK/long"
awk -F, -v OFS=, 'NR == 1 { print } NR == 2 { for (i = 1; i <= 5000; i++) { $1 = i; $3 = 5000 - i; print } }' "$WORK/a/loss.csv" > "$WORK/long/loss.csv"
ranks 1 report "$WORK/long" --out "$WORK/long.html"
expect 0 "a long run"
[ "$(stat -c %s "$WORK/long.html")" -lt 100000 ] || fail "a long run makes a large page"
bytes=$WORK/bytes-$(printf '\xe9-') # no UTF-8
cp -r "$WORK/a" "$bytes"
ranks 1 report "$WORK/a" "$bytes" --out "$WORK/bytes.html"
expect 0 "a folder whose name is no UTF-8"
iconv -f UTF-8 -t UTF-8 "$WORK/bytes.html" > /dev/null || fail "the page is no UTF-8"
pass "one run, a young one, a long one, one with a strange name"

# The same figures as a picture, by gnuplot.
if program gnuplot; then
  ranks 1 report "$WORK/a" "$strange" "$bytes" --out "$WORK/page.html" --svg "$WORK/curves.svg" --png "$WORK/curves.png"
  expect 0 "pictures"
  [ -s "$WORK/err.txt" ] && fail "gnuplot complains" "$WORK/err.txt"
  [ "$(head -c 8 "$WORK/curves.png" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || fail "no PNG"
  python3 - "$WORK/curves.svg" "$WORK/a" "$strange" > "$WORK/out.txt" 2>&1 << 'PYTHON' || fail "the SVG" "$WORK/out.txt"
import sys
import xml.etree.ElementTree as tree
words = "".join(tree.parse(sys.argv[1]).getroot().itertext())
for text in ["Training loss", "Test accuracy", "Learning rate", *sys.argv[2:]]:
    assert text in words, text
PYTHON
  ranks 1 report "$WORK/a" "$WORK/long" --out "$WORK/page.html" --svg "$WORK/curves.svg" --png "$WORK/curves.png"
  expect 0 "pictures of a long run, whose points are not marked"
  [ -s "$WORK/err.txt" ] && fail "gnuplot complains of a long run" "$WORK/err.txt"
  ranks 1 report "$WORK/a" --out "$WORK/page1.html" --svg "$WORK/none/curves.svg"
  expect 4 "a picture in a folder that is not there"
  pass "gnuplot draws the curves as SVG and PNG"
fi
mkdir "$WORK/bin"
code=0
PATH=$WORK/bin "$CONVOY" report "$WORK/a" --out "$WORK/page1.html" --svg "$WORK/x.svg" > "$WORK/out.txt" 2> "$WORK/err.txt" || code=$?
expect 2 "no gnuplot in PATH"
grep -q "needs gnuplot, which is not in PATH" "$WORK/err.txt" || fail "the error does not name gnuplot" "$WORK/err.txt"
[ -e "$WORK/x.svg" ] && fail "a picture without gnuplot"
[ -e "$WORK/page1.html" ] && fail "a page was written although the picture was refused"
pass "without gnuplot a picture is refused by name"

# A folder of `convoy bench scaling`, alone and beside a run.
ranks 2 bench scaling --model simplecnn --batch 16 --steps 1 --windows 5 --backend cpu --threads 1 --out "$WORK/scaling"
expect 0 "bench scaling"
ranks 1 report "$WORK/a" "$WORK/scaling" --out "$WORK/scaling.html"
expect 0 "a page with scaling"
ranks 1 report "$WORK/scaling" --out "$WORK/alone.html"
expect 0 "a page of scaling alone"
python3 - "$here" "$WORK/scaling.html" "$WORK/alone.html" "$WORK/scaling/scaling.csv" > "$WORK/out.txt" 2>&1 << 'PYTHON' || fail "the scaling figures" "$WORK/out.txt"
import csv, sys
here, page_file, alone, table = sys.argv[1:]
sys.path.insert(0, here)
source = open(f"{here}/report_check.py").read().split("\ntext = ")[0]  # its class, not its checks
exec(source)
with open(table) as f:
    rows = list(csv.DictReader(f))
assert {row["mode"] for row in rows} == {"strong", "weak"} and len(rows) == 4, rows
for name, index in ((page_file, 1), (alone, 0)):
    page = Page()
    page.feed(open(name).read())
    for title, column_name in (("Scaling: images per second (weak: dashed)", "images_per_s"), ("Scaling: efficiency (weak: dashed)", "efficiency")):
        strong, weak = [c for t, _, c in page.curves if t == title]
        assert [n for t, n, _ in page.curves if t == title] == [f"run{index}", f"run{index} dashed"]
        values = [float(row[column_name]) for mode in ("strong", "weak") for row in rows if row["mode"] == mode]
        assert straight(values, [p[1] for p in strong + weak]), title
    bars = [bar for _, bar in sorted(page.bars["Scaling: parts of a step"].items())]
    parts = [[float(row[c]) for c in ("data_ms", "forward_ms", "backward_ms", "exposed_ms", "update_ms")] for row in rows]
    scale = max(sum(bar.values()) for bar in bars) / max(map(sum, parts))
    for bar, row in zip(bars, parts):
        assert all(abs(bar.get(f"part{i}", 0) - scale * value) < 0.1 for i, value in enumerate(row)), (bar, row)
    assert len(bars) == 4
PYTHON
pass "scaling: rates, efficiencies and the parts of a step"

refused() { # TEXT ARGUMENT...
  local text=$1
  shift
  ranks 1 report "$@" --out "$WORK/x.html"
  expect 2 "report $*"
  one_error "report $*"
  grep -q "$text" "$WORK/err.txt" || fail "the error does not say '$text'" "$WORK/err.txt"
  [ -e "$WORK/x.html" ] && fail "a refused report wrote a page"
}
refused "expected the folder of a run" "$WORK/none"
refused "expected the folder of a run" "$data"
refused "needs run"
refused "at most 8" "$WORK/a" "$WORK/a" "$WORK/a" "$WORK/a" "$WORK/a" "$WORK/a" "$WORK/a" "$WORK/a" "$WORK/a"
cp -r "$WORK/a" "$WORK/broken"
sed -i '3s/,[^,]*,/,x,/2' "$WORK/broken/loss.csv"
refused "loss.csv:3: expected numbers" "$WORK/broken"
pass "refused: no run, too many, damaged logs"
