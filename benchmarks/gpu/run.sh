#!/bin/sh
# Unpack what pack.py packed (once) and run the campaign with it:
#   sh run.sh OUT [options of campaign.py]
# OUT gets one file, tilewright-gpu-results.tar.gz. If it is there already, the campaign goes on
# from it. PYTHON names the interpreter (python3), UNPACKED where it is unpacked to (below /tmp).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?"usage: sh run.sh OUT [options of campaign.py]"}
shift
unpacked=${UNPACKED:-${TMPDIR:-/tmp}/tilewright-gpu-$(id -u)}
python=${PYTHON:-python3}
archive=$(ls "$here"/tilewright-gpu-*.tar.xz | head -n 1)
unpack() {
    "$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1" "$2"
}
if [ ! -e "$unpacked/complete" ] || [ "$archive" -nt "$unpacked/complete" ]; then
    rm -rf "$unpacked"
    mkdir -p "$unpacked/prepared"
    unpack "$archive" "$unpacked"
    if [ -d "$here/prepared" ]; then
        for file in "$here"/prepared/*; do
            case $file in
                *.tar.xz) unpack "$file" "$unpacked/prepared" ;;
                *) cp "$file" "$unpacked/prepared/" ;;
            esac
        done
    fi
    touch "$unpacked/complete"
fi
root=$unpacked/tilewright-gpu
wanted=$(cat "$root/python")
found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ "$wanted" != "$found" ]; then
    echo "error: packed for Python $wanted, but $python is $found: set PYTHON," \
        "or pack with --python $found" >&2
    exit 1
fi
export PYTHONPATH="$root/site${PYTHONPATH:+:$PYTHONPATH}"
export XDG_CACHE_HOME="$unpacked/cache"
mkdir -p "$out"
exec "$python" "$root/benchmarks/gpu/campaign.py" --out "$unpacked/campaign" \
    --archive "$out/tilewright-gpu-results.tar.gz" --prepared "$unpacked/prepared" "$@"
