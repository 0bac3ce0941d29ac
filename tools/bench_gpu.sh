#!/usr/bin/env bash
# Runs the GPU benchmark: tools/bench_gpu.sh [arguments of bench/gpu/run.py]. Writes bench/results/gpu.json.
# $PYTHON (python3) must have torch and torchvision; headrace comes from dist/ (see tools/gpu.sh). No network.
set -euo pipefail
# shellcheck source=tools/gpu.sh
source "$(dirname "$0")/gpu.sh"
cd "$ROOT"
use_wheel
exec "$PYTHON" bench/gpu/run.py "$@"
