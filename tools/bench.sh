#!/usr/bin/env bash
# Installs what is missing and runs the benchmarks: tools/bench.sh [TASK…] [--photos DIR] [--repeats N], as bench/run.py.
# Writes bench/results/TASK.json, and the figure of the README from train_transform's. Wants a quiet machine.
set -euo pipefail
# shellcheck source=tools/install.sh
source "$(dirname "$0")/install.sh"
cd "$ROOT"
need_packages "${BENCH_PACKAGES[@]}"
install_wheel
need_python "${TRAIN_PYTHON[@]}" "${BENCH_PYTHON[@]}"
status=0
"$PYTHON" bench/run.py "$@" || status=$?
[ ! -e bench/results/train_transform.json ] || "$PYTHON" bench/plot.py
exit $status
