#!/usr/bin/env bash
# Runs the tests that need a GPU: tools/test_gpu.sh [pytest's arguments]. Without a GPU they are skipped, with the reason.
# $PYTHON (python3) must have torch, pytest and Pillow; headrace comes from dist/ (see tools/gpu.sh). No network.
set -euo pipefail
# shellcheck source=tools/gpu.sh
source "$(dirname "$0")/gpu.sh"
cd "$ROOT"
use_wheel
# The C++ tests, where they were built (tools/test.sh cpp) or brought: $GPU_TEST.
gpu_test=${GPU_TEST:-build/release/tests/gpu/gpu_test}
[ ! -x "$gpu_test" ] || "$gpu_test"
exec "$PYTHON" -m pytest -p no:cacheprovider tests/gpu tests/python/test_copying.py "$@"
