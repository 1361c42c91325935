#!/usr/bin/env bash
# The page of convoy report in a browser: Chromium shows the curves and bars, light and dark. Chromium is heavy and not fetched
# for the tests: without it the suite counts as skipped (Debian: chromium).
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
program chromium || exit 77
modules PIL || exit 77
set_of "$WORK/data" 256 64
run() { # OUT OPTION...
  ranks 1 train --data "$WORK/data" --out "$1" --backend cpu --threads 1 --batch 32 --log-every 1 --epochs 3 "${@:2}"
  expect 0 "a run"
}
run "$WORK/a"
run "$WORK/b" --lr 0.004 --schedule cosine
ranks 1 report "$WORK/a" "$WORK/b" --out "$WORK/page.html"
expect 0 "a page of two runs"
for scheme in light dark; do
  set -- --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$WORK/profile" --hide-scrollbars --window-size=1000,2600
  [ $scheme = dark ] && set -- "$@" --blink-settings=preferredColorScheme=0
  timeout 120 chromium "$@" --screenshot="$WORK/$scheme.png" "file://$WORK/page.html" > "$WORK/out.txt" 2>&1
  [ -s "$WORK/$scheme.png" ] || fail "chromium shows nothing" "$WORK/out.txt"
done
"$CONVOY_PYTHON" - "$WORK" > "$WORK/out.txt" 2>&1 << 'PYTHON' || fail "the screenshots" "$WORK/out.txt"
import sys
from PIL import Image
for scheme, back, curves in (("light", (255, 255, 255), ((0, 0x67, 0xB0), (0xC6, 0x5B, 0))), ("dark", (0x15, 0x18, 0x1C), ((0x56, 0xB4, 0xE9), (0xFF, 0x9D, 0x45)))):
    picture = Image.open(f"{sys.argv[1]}/{scheme}.png").convert("RGB")
    count = dict((c, n) for n, c in picture.getcolors(1 << 24))
    print(scheme, count.get(back), [count.get(c) for c in curves])
    assert count.get(back, 0) > 0.5 * picture.width * picture.height
    assert all(count.get(c, 0) > 300 for c in curves)
    assert len([c for c, n in count.items() if n > 2000 and max(c) - min(c) > 60]) >= 2  # the bars
PYTHON
pass "chromium shows the curves, light and dark"
