#!/usr/bin/env python3
"""Runs a command and tells the largest proportional set size of each rank among its processes: peak_pss.py COMMAND...

The PSS counts pages that processes share in part for each, mapped files included. It is looked at four times a second; what has
less than a tenth of a GiB, a launcher, is left out. Needs Linux and no Python packages.
"""
import contextlib
import os
import subprocess
import sys
import threading

GIB = 1 << 30


def pss_of(pid):
    """Bytes; 0 once the process is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            return sum(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))
    except OSError:
        return 0


def ranks_below(pid):
    """`pid` and processes that descend from it and have no children of their own."""
    children = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as stat:
                parent = int(stat.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry))
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        waiting += children.get(one, [])
        if one not in children:
            found.append(one)
    return found


@contextlib.contextmanager
def watch_peaks(pid):
    """Yields a dictionary, which gets the peaks by process in bytes until the context ends."""
    peaks, stop = {}, threading.Event()

    def look():
        while not stop.wait(0.25):
            for rank in ranks_below(pid):
                peaks[rank] = max(peaks.get(rank, 0), pss_of(rank))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield peaks
    finally:
        stop.set()
        watcher.join()


def run(words, **how):
    """Returns the exit code, and the peaks of processes that had a tenth of a GiB, in bytes."""
    process = subprocess.Popen([str(word) for word in words], **how)
    with watch_peaks(process.pid) as peaks:
        code = process.wait()
    return code, [peak for peak in peaks.values() if peak > GIB / 10]


def describe(peaks):
    return f"peak PSS {' + '.join(format(peak / GIB, '.2f') for peak in peaks)} = {sum(peaks) / GIB:.2f} GiB"


if __name__ == "__main__":
    code, peaks = run(sys.argv[1:])
    print(describe(peaks), file=sys.stderr)
    sys.exit(code)
