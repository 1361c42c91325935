#!/usr/bin/env bash
# convoy train --metrics: a file that promtool takes, with the values of loss.csv and epochs.csv. Checked by promtool and
# Prometheus where they are installed; its names, labels and values always.
# shellcheck source=tests/program/lib.sh
. "$(dirname "$0")/lib.sh"
data=$WORK/data file=$WORK/run.prom
set_of "$data" 384 100
train() { # RANKS OPTION...
  local count=$1
  shift
  ranks "$count" train --data "$data" --out "$WORK/a \"run\""$'\xff' --backend cpu --threads 1 --log-every 1 --metrics "$file" "$@"
}
value() { sed -n "s/^$1{.*} //p" "$file"; }
same() { # METRIC VALUE
  awk -v a="$(value "$1")" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && d <= 1e-6 * (b < 0 ? -b : b)) }' ||
    fail "$1 is '$(value "$1")', expected $2" "$file"
}
well_formed() {
  [ -e "$file.tmp" ] && fail "the temporary file stays"
  if program promtool; then
    promtool check metrics < "$file" > "$WORK/promtool.txt" 2>&1 || fail "promtool refuses $1" "$WORK/promtool.txt" "$file"
    [ -s "$WORK/promtool.txt" ] && fail "promtool complains about $1" "$WORK/promtool.txt"
    pass "promtool takes the metrics of $1"
  fi
}

train 2 --epochs 2 --steps 5 --checkpoint-every 3
expect 0 "a run with --metrics"
well_formed "a run"
grep -q '^convoy_train_loss{run="[^"]*a \\"run\\"?",model="simplecnn",host="[^"]*"} ' "$file" || fail "the labels" "$file"
last=$(tail -1 "$WORK"/a*/loss.csv) epoch=$(tail -1 "$WORK"/a*/epochs.csv)
field() { cut -d, -f"$2" <<< "$1"; }
same convoy_train_steps_total 5
same convoy_train_planned_steps 5
same convoy_train_planned_epochs 2
same convoy_train_epochs_total 1
same convoy_train_ranks 2
same convoy_train_running 0
same convoy_train_exit_status 0
grep -q '^convoy_train_device_' "$file" && fail "a CPU run tells about a device" "$file"
same convoy_train_loss "$(field "$last" 3)"
same convoy_train_learning_rate "$(field "$last" 4)"
same convoy_train_seconds_total "$(field "$last" 6)"
same convoy_train_accuracy_ratio "$(field "$epoch" 4)"
same convoy_test_loss "$(field "$epoch" 5)"
same convoy_test_accuracy_ratio "$(field "$epoch" 6)"
pass "the values are those of the run's files"

# Every query of the dashboard names metrics that are there.
dashboard=$(dirname "$0")/../../jobs/grafana.json
grep -o 'convoy_[a-z_]*' "$dashboard" | sort -u > "$WORK/asked.txt"
sed -n 's/^\(convoy_[a-z_]*\){.*/\1/p' "$file" | sort -u > "$WORK/there.txt"
comm -23 "$WORK/asked.txt" "$WORK/there.txt" > "$WORK/missing.txt"
[ -s "$WORK/missing.txt" ] && fail "the dashboard asks for what is not there" "$WORK/missing.txt"
[ "$(wc -l < "$WORK/asked.txt")" -gt 8 ] || fail "the dashboard asks for little" "$WORK/asked.txt"
pass "every metric of the dashboard exists"

# A real Prometheus scrapes the file and answers the dashboard's queries.
if program prometheus; then
  python3 - "$WORK" "$dashboard" > "$WORK/scrape.txt" 2>&1 << 'PYTHON' || fail "Prometheus" "$WORK/scrape.txt"
import functools, http.server, json, re, socket, subprocess, sys, threading, time, urllib.parse, urllib.request

work, dashboard = sys.argv[1:]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=work)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
with open(f"{work}/prometheus.yml", "w") as f:
    json.dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "convoy", "metrics_path": "/run.prom",
               "static_configs": [{"targets": [f"127.0.0.1:{server.server_address[1]}"]}]}]}, f)
child = subprocess.Popen(["prometheus", f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/tsdb",
                          f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ask(query):
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    return json.load(urllib.request.urlopen(url, timeout=10))["data"]["result"]


try:
    queries = [t["expr"] for p in json.load(open(dashboard))["panels"] for t in p["targets"]]
    queries = [re.sub(r'run=~"\$run"', 'run=~".*run.*"', q) for q in queries]
    for _ in range(60):
        try:
            if ask("convoy_train_running"):
                break
        except OSError:
            pass
        time.sleep(1)
    for query in queries:
        result = ask(query)
        print(query, result)
        assert len(result) == 1, query
finally:
    child.terminate()
    child.wait()
PYTHON
  pass "Prometheus scrapes the file and answers every query of the dashboard"
fi

train 1 --epochs 2 --resume --overwrite
expect 2 "contradicting options"
same convoy_train_steps_total 5
ranks 1 train --data "$data" --out "$WORK/b" --backend cpu --lr 1e30 --epochs 3 --metrics "$file"
expect 3 "a run whose loss is not finite"
same convoy_train_exit_status 3
same convoy_train_running 0
grep -qi "nan\|inf" "$file" && fail "a value is not finite" "$file"
well_formed "a failed run"
ranks 1 train --data "$data" --out "$WORK/c" --backend cpu --epochs 1 --metrics "$WORK/none/run.prom"
expect 4 "a folder that is not there"
one_error "a folder that is not there"
[ -e "$WORK/c/loss.csv" ] && fail "it trained nevertheless"
pass "a failed run says so; a file that cannot be written is refused at the start"
