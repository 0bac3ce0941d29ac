#!/usr/bin/env bash
# From a bare machine to a trained network: installs what is missing, builds and installs Headrace into .venv, packs a
# folder of photos, trains on it through a private daemon, and compares the rate with PyTorch's DataLoader.
#
#   tools/quickstart.sh                  on photos that it makes itself
#   tools/quickstart.sh PHOTO_FOLDER     on yours: one folder per class (ImageFolder)
#
# Debian 12 or Ubuntu 24.04, root or sudo. Needs apt and the Python package index the first time; later runs need neither.
set -euo pipefail
# shellcheck source=tools/install.sh
source "$(dirname "$0")/install.sh"

case ${1:-} in
  -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
esac
[ $# -le 1 ] || { echo "usage: tools/quickstart.sh [PHOTO_FOLDER]" >&2; exit 2; }
photos=
if [ $# = 1 ]; then
  photos=$(realpath -e -- "$1") || { echo "quickstart: no folder $1" >&2; exit 2; }
fi
cd "$ROOT"
work=$ROOT/build/quickstart
mkdir -p "$work"

install_wheel
need_python "${TRAIN_PYTHON[@]}"

own=()
if [ -z "$photos" ]; then
  photos=$work/photos
  own=(--expect-loss-falls)
  if [ ! -e "$work/photos.done" ]; then
    say "Making photos in $photos"
    rm -rf "$photos"
    "$PYTHON" examples/make_photos.py "$photos"
    touch "$work/photos.done"
  fi
fi

# A folder that changes gets another dataset: names, sizes and times are its key.
key=$(find -L "$photos" -type f -printf '%P %s %T@\n' | LC_ALL=C sort | sha256sum | cut -c 1-16)
dataset=$work/dataset-$key
say "Packing $photos"
if [ -e "$dataset/dataset.json" ]; then
  echo "already packed: $dataset"
else
  "$VENV/bin/headrace" pack "$photos" "$dataset"
fi

say "Training through a private daemon"
"$PYTHON" examples/train.py "$dataset" "${own[@]}"

say "Comparing with PyTorch's DataLoader, $(nproc) cores"
"$PYTHON" bench/run.py compare --photos "$photos"

say "Done"
echo "Next: . .venv/bin/activate; headrace --help; and docs/python.md for your own script."
