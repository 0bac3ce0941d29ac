# Sourced by test_gpu.sh and bench_gpu.sh, which run where nothing can be installed: the wheel from dist/ beside a Python that
# has everything else. $PYTHON: that Python (python3). $WHEEL: another wheel; "" for a headrace that is already there.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PYTHON=${PYTHON:-python3}
SITE=$ROOT/build/gpu-site

# use_wheel: installs the wheel into a folder of its own and puts that first.
use_wheel() {
  local wheel=${WHEEL-$(ls "$ROOT"/dist/headrace-*.whl 2>/dev/null | tail -n 1)}
  if [ -n "$wheel" ]; then
    rm -rf "$SITE"
    "$PYTHON" -m pip install -q --disable-pip-version-check --no-index --no-deps --no-compile --target "$SITE" "$wheel"
    export PYTHONPATH=$SITE${PYTHONPATH:+:$PYTHONPATH}
  fi
  "$PYTHON" -c 'import headrace, torch; print("headrace", headrace.__version__, headrace.__file__)
print("torch", torch.__version__, [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())])'
}
