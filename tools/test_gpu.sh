#!/usr/bin/env bash
# Runs the tests that need a GPU: tools/test_gpu.sh [pytest's arguments]. Without a GPU they are skipped, with the reason.
# $PYTHON (python3) must have torch, torchvision, pytest and Pillow (13, or what compares with its pixels is skipped); headrace comes from dist/ (see tools/gpu.sh). No network.
set -euo pipefail
# shellcheck source=tools/gpu.sh
source "$(dirname "$0")/gpu.sh"
cd "$ROOT"
use_wheel
# The C++ tests and the conformance suite's tools, where they were built (tools/test.sh cpp) or brought.
tests=${GPU_TESTS:-build/release/tests}
[ ! -x "$tests/gpu/gpu_test" ] || "$tests/gpu/gpu_test"
conformance=()
if [ -x "$tests/gpu/headrace_render_tool_gpu" ]; then
  export HEADRACE_RENDER_TOOL=$tests/support/headrace_render_tool
  conformance=(tests/conformance/test_render_transforms.py)
fi
exec "$PYTHON" -m pytest -p no:cacheprovider tests/gpu tests/python/test_copying.py "${conformance[@]}" "$@"
