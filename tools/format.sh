#!/usr/bin/env bash
# Formats the C++ files with clang-format; with --check only says which differ, and exits with 1 then.
set -euo pipefail
# shellcheck source=tools/install.sh
source "$(dirname "$0")/install.sh"
cd "$ROOT"
command -v clang-format >/dev/null || need_packages clang-format
mode=(-i)
[ "${1:-}" = --check ] && mode=(--dry-run --Werror)
find core client server packer cli tests bench \( -name '*.h' -o -name '*.cc' -o -name '*.c' \) -print0 |
  xargs -0 clang-format "${mode[@]}"
