#!/usr/bin/env bash
# Builds the fuzzers of tests/fuzz and runs them one after the other.
#
#   tools/fuzz.sh [SECONDS [TARGET...]]     60 seconds, all targets
#
# Inputs that reach new code are added to tests/fuzz/corpus/TARGET/. Stops at the first finding, exits
# with 1, and names the input: run it again with build/fuzz/tests/fuzz/fuzz_TARGET INPUT. Once the fault is mended, the
# input belongs into the corpus.
set -euo pipefail
# shellcheck source=tools/install.sh
source "$(dirname "$0")/install.sh"
cd "$ROOT"

seconds=${1:-60}
targets=("${@:2}")
if [ ${#targets[@]} = 0 ]; then
  for file in tests/fuzz/*_fuzzer.cc; do targets+=("$(basename "$file" _fuzzer.cc)"); done
fi
folder=$ROOT/build/fuzz/tests/fuzz logs=$ROOT/build/logs
mkdir -p "$logs"

need_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" "${FUZZ_PACKAGES[@]}"
use_ccache
cmake --preset fuzz >"$logs/fuzz-configure.log" || { cat "$logs/fuzz-configure.log"; exit 1; }
cmake --build --preset fuzz --parallel "$(nproc)" --target "${targets[@]/#/fuzz_}"

for target in "${targets[@]}"; do
  say "$target: $seconds s"
  corpus=$ROOT/tests/fuzz/corpus/$target log=$logs/fuzz-$target.log
  # What was found before goes on from there; the repository gets only what reaches code that nothing in it reaches.
  found=$ROOT/build/fuzz-corpus/$target
  mkdir -p "$corpus" "$found"
  if ! "$folder/fuzz_$target" -max_total_time="$seconds" -max_len=1200 -len_control=10 -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$found-" "$found" "$corpus" >"$log" 2>&1; then
    tail -n 60 "$log"
    input=$(grep -aoP 'Test unit written to \K.*' "$log" || echo "not known")
    echo "tools/fuzz.sh: $target: a finding; the input is $input, the log $log" >&2
    exit 1
  fi
  grep -aE 'DONE|stat::number_of_executed_units|stat::peak_rss_mb' "$log"
  "$folder/fuzz_$target" -merge=1 -use_counters=0 "$corpus" "$found" >"$log.merge" 2>&1 || { tail -n 60 "$log.merge"; exit 1; }
  echo "corpus: $(find "$corpus" -type f | wc -l) files, $(du -sb "$corpus" | cut -f 1) bytes"
done
