#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test.
#
#   tools/test.sh                  everything
#   tools/test.sh cpp python ...   only these parts:
#     cpp     C++ tests, as the wheel is built
#     asan    C++ tests under the address and undefined-behaviour sanitizers
#     tsan    C++ tests of the targets without gRPC under the thread sanitizer
#     python  pytest, on the wheel installed into .venv
# Ends with what failed C++ tests printed and each runner's closing lines. Exits with 1 if any part failed.
set -euo pipefail
# shellcheck source=tools/install.sh
source "$(dirname "$0")/install.sh"
cd "$ROOT"

parts=("$@")
[ $# -gt 0 ] || parts=(cpp asan tsan python)
jobs=$(nproc)
logs=$ROOT/build/logs
mkdir -p "$logs"
failed=()
closing=()

# Address randomisation of more than 28 bits breaks gcc 12's thread sanitizer, in tests and while tests are listed.
fixed_addresses() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then setarch "$(uname -m)" -R "$@"; else "$@"; fi
}

# failed_output LOG: what the tests that failed printed, of ctest's own log; its end where it is much.
failed_output() {
  awk '/^[0-9]+\/[0-9]+ Test(ing)?: / { text = "" } { text = text $0 "\n" } /^Test Failed\.$/ { printf "%s", text }' "$1" | tail -n 100
}

# ctest_part PRESET
ctest_part() {
  local preset=$1 log=$logs/$1.log
  say "$preset: building"
  need_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
  use_ccache
  cmake --preset "$preset" >"$logs/$preset-configure.log" || { cat "$logs/$preset-configure.log"; return 1; }
  fixed_addresses cmake --build --preset "$preset" --parallel "$jobs" || return 1
  say "$preset: ctest"
  local status=0
  fixed_addresses ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --parallel "$jobs" |
    tee "$log" || status=1
  [ $status = 0 ] || closing+=("$(failed_output "build/$preset/Testing/Temporary/LastTest.log")")
  closing+=("$preset: $(grep -E '% tests passed' "$log" || echo 'ctest did not finish')")
  return $status
}

# The Python packages, some GB, come while the compiler works: prints what was said once they are all there.
python_packages=
fetch_python_packages() {
  need_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
  need_venv
  need_python "${BUILD_PYTHON[@]}" "${TRAIN_PYTHON[@]}" "${TEST_PYTHON[@]}" >"$logs/pip.log" 2>&1 &
  python_packages=$!
}

python_part() {
  wait "$python_packages" || { cat "$logs/pip.log"; return 1; }
  cat "$logs/pip.log"
  install_wheel || return 1
  say "release: building what the tests in Python drive"
  use_ccache
  cmake --preset release >"$logs/release-configure.log" || { cat "$logs/release-configure.log"; return 1; }
  cmake --build --preset release --parallel "$jobs" || return 1
  local sanitizer
  for sanitizer in asan tsan; do
    cmake --preset "$sanitizer" >"$logs/$sanitizer-configure.log" || { cat "$logs/$sanitizer-configure.log"; return 1; }
    fixed_addresses cmake --build --preset "$sanitizer" --parallel "$jobs" --target headrace_client || return 1
    export "HEADRACE_${sanitizer^^}_LIBRARY=$ROOT/build/$sanitizer/client/libheadrace.so"
  done
  say "pytest"
  local status=0
  HEADRACE_RENDER_TOOL=$ROOT/build/release/tests/support/headrace_render_tool \
    "$PYTHON" -m pytest -p no:cacheprovider -n "$jobs" | tee "$logs/pytest.log" || status=1
  closing+=("$(grep -E '^=+ .*(passed|failed|error|no tests ran).* =+$' "$logs/pytest.log" | tail -n 1)")
  return $status
}

[[ " ${parts[*]} " != *" python "* ]] || fetch_python_packages

for part in "${parts[@]}"; do
  case $part in
    cpp) ctest_part release || failed+=(cpp) ;;
    asan | tsan) ctest_part "$part" || failed+=("$part") ;;
    python) python_part || failed+=(python) ;;
    *) echo "tools/test.sh: unknown part: $part (cpp, asan, tsan, python)" >&2; exit 2 ;;
  esac
done

say "Summary"
printf '%s\n' "${closing[@]}"
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
