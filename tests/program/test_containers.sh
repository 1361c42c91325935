#!/usr/bin/env bash
# jobs/Containerfile, convoy.def and mpijob.yaml, as far as they can be tried without the tools that read them: the manifest
# fits its schema; what the images copy is enough to configure a build; both install the packages that jobs/setup.sh names.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/../.." || exit 1

if modules yaml jsonschema; then
  "$CONVOY_PYTHON" tests/program/manifest_check.py jobs/mpijob.yaml tests/mpijob.schema.json jobs/configs > "$WORK/out.txt" 2>&1 ||
    fail "jobs/mpijob.yaml" "$WORK/out.txt"
  pass "jobs/mpijob.yaml fits its schema: $(cat "$WORK/out.txt")"
fi

# words FILE: the packages that it installs, one a line, by the names that Debian and Ubuntu share.
words() {
  sed -e ':join' -e '/\\$/{N;s/\\\n//;b join' -e '}' "$1" | sed -n 's/.*apt-get install -y --no-install-recommends //p' |
    sed 's/&&.*//' | tr -s ' ' '\n' | grep . | sort
}
# shellcheck source=jobs/setup.sh
wanted() { (. jobs/setup.sh && packages_of build) | tr -s ' ' '\n' | sed -e 's/libjpeg62-turbo-dev/libjpeg-dev/' -e 's/^gcc$/g++/' | sort -u; }
for file in Containerfile convoy.def; do
  words "jobs/$file" | grep -v '^openssh-' | diff <(wanted) - > "$WORK/diff.txt" || fail "jobs/$file installs other packages than jobs/setup.sh" "$WORK/diff.txt"
done
pass "both images install what a build needs"

# ---- the copied files ----
copied=$WORK/src
mkdir "$copied"
while read -r from to; do
  [ -e "$from" ] || fail "jobs/Containerfile copies '$from', which is not there"
  case $to in /src/*) cp -r "$from" "$copied/" ;; esac
done < <(sed -n 's/^COPY //p' jobs/Containerfile)
while read -r from _; do [ -e "$from" ] || fail "jobs/convoy.def copies '$from', which is not there"; done \
  < <(sed -n '/^%files/,/^%post/s/^    //p' jobs/convoy.def)
diff <(sed -n 's/^COPY \([^ ]*\) .*/\1/p' jobs/Containerfile | sort) <(sed -n '/^%files/,/^%post/s/^    \([^ ]*\) .*/\1/p' jobs/convoy.def | sort) ||
  fail "the two images copy different files"
cmake -G Ninja -S "$copied" -B "$WORK/build" -DBUILD_TESTING=OFF -DWITH_CPU=ON -DWITH_CUDA=OFF > "$WORK/out.txt" 2>&1 ||
  fail "what the images copy is not enough to configure a build" "$WORK/out.txt"
pass "what the images copy can be configured"

# ---- the shell in them ----
sed -n '/^%post/,/^%/{/^%/d;p}' jobs/convoy.def > "$WORK/post.sh"
sed -e ':join' -e '/\\$/{N;s/\\\n//;b join' -e '}' jobs/Containerfile | sed -n 's/^RUN //p' > "$WORK/run.sh"
for file in post run; do
  [ -s "$WORK/$file.sh" ] || fail "no commands found"
  sh -n "$WORK/$file.sh" 2> "$WORK/err.txt" || fail "not shell" "$WORK/err.txt"
done
pass "their commands parse"
