#!/usr/bin/env bash
# bench/file_io.sh FOLDER [MIB [ROUNDS]]: build/bin/file_io with io_uring and with threads, and fio with the same
# parameters (1 MiB, queue 16, direct), in turns on the file system of FOLDER; then the medians and their ratios to fio.
set -euo pipefail
(($# >= 1)) || { echo "usage: bench/file_io.sh FOLDER [MIB [ROUNDS]]" >&2; exit 1; }
folder=$1 mib=${2:-1024} rounds=${3:-5}
program=$(dirname "${BASH_SOURCE[0]}")/../build/bin/file_io
work=$(mktemp -d "$folder/zeroth-fio.XXXXXX")
trap 'rm -rf "$work"' EXIT

# fio_rate ENGINE write|read: MiB/s; its terse line has KiB/s of reads in field 7, of writes in field 48.
fio_rate() {
  fio --name=swap --filename="$work/fio" --ioengine="$1" --rw="$2" --bs=1M --iodepth=16 --direct=1 --size="${mib}M" \
    --minimal </dev/null 2>/dev/null | awk -F';' -v field="$([[ $2 == read ]] && echo 7 || echo 48)" '{printf "%.0f", $field / 1024}'
}

zeroth_rates() {
  "$program" "$folder" "$mib" "$1" | awk '/^write/ {print $2, $4}'
}

# measure NAME: a line with its name, write and read rate. What comes first differs from round to round.
measure() {
  local tool=${1%-*} engine=${1#*-}
  rm -f "$work/fio"
  case $tool in
    fio) echo "$1 $(fio_rate "$engine" write) $(fio_rate "$engine" read)" ;;
    zeroth) echo "$1 $(zeroth_rates "$engine")" ;;
  esac
}

names=(fio-io_uring zeroth-uring fio-libaio zeroth-threads)
for ((round = 0; round < rounds; ++round)); do
  for i in 0 1 2 3; do measure "${names[(i + round) % 4]}"; done
done | tee >(cat >&2) | python3 -c '
import collections, statistics, sys
rates = collections.defaultdict(list)
for line in sys.stdin:
    name, write, read = line.split()
    rates[name].append((float(write), float(read)))
medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in rates.items()}
best = [max(medians[name][i] for name in medians if name.startswith("fio")) for i in (0, 1)]
for name, (write, read) in medians.items():
    print(f"{name:15} median write {write:.0f} MiB/s ({write / best[0]:.0%} of fio), read {read:.0f} ({read / best[1]:.0%})")
'
