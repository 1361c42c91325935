#!/usr/bin/env bash
# convoy report: one page whose curves are the runs' logs, which needs nothing else and names the differences; where
# chromium is installed, it shows them, light and dark.
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
pass "one run, a young one, a long one"

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

browser=$(command -v chromium || true)
if [ -n "$browser" ]; then
  for scheme in light dark; do
    set -- --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$WORK/profile" --hide-scrollbars --window-size=1000,1500
    [ $scheme = dark ] && set -- "$@" --blink-settings=preferredColorScheme=0
    timeout 120 "$browser" "$@" --screenshot="$WORK/$scheme.png" "file://$WORK/page.html" > "$WORK/out.txt" 2>&1
    [ -s "$WORK/$scheme.png" ] || fail "chromium shows nothing" "$WORK/out.txt"
  done
  if "$CONVOY_PYTHON" -c "import PIL" 2> /dev/null; then
    "$CONVOY_PYTHON" - "$WORK" > "$WORK/out.txt" 2>&1 << 'PYTHON' || fail "the screenshots" "$WORK/out.txt"
import sys
from PIL import Image
for scheme, back, curves in (("light", (255, 255, 255), ((0, 0x67, 0xB0), (0xC6, 0x5B, 0))), ("dark", (0x15, 0x18, 0x1C), ((0x56, 0xB4, 0xE9), (0xFF, 0x9D, 0x45)))):
    picture = Image.open(f"{sys.argv[1]}/{scheme}.png").convert("RGB")
    count = dict((c, n) for n, c in picture.getcolors(1 << 24))
    print(scheme, count.get(back), [count.get(c) for c in curves])
    assert count.get(back, 0) > 0.5 * picture.width * picture.height
    assert all(count.get(c, 0) > 300 for c in curves)
PYTHON
    pass "chromium shows the curves, light and dark"
  else
    echo "skipped: no Pillow to look at the screenshots"
  fi
else
  echo "skipped: no chromium"
fi
