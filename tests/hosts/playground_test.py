"""Hosts are apart from each other and from this machine, and end with their test, also where that is killed."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
import uuid

import playground

MARK = "ZEROTH_TEST_MARK"


def wait_for(condition, host):
    """ssh may end before what it left in the background has begun."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, host.strays()
        time.sleep(0.05)


def live():
    """Of the process that is killed."""
    ground = playground.enter([__file__])
    left, right = ground.add_hosts("left", "right")
    ground.write("word", "for all")
    left.call("sh", "-c", "echo own >/tmp/file && echo own >/dev/shm/file")
    card = "hostname; cat /proc/sys/kernel/random/boot_id"
    facts = [playground.call("ssh", name, card).split() for name in ("left", "right")]
    assert [name for name, _ in facts] == ["left", "right"] and facts[0][1] != facts[1][1], facts
    seen = right.call("sh", "-c", f"cat {ground.folder}/word; ls /tmp /dev/shm")
    assert "file" not in seen and seen.startswith("for all"), seen
    left.call("ssh", "right", "nohup sleep 1000 >/dev/null 2>&1 &")
    wait_for(lambda: any("sleep 1000" in stray for stray in right.strays()), right)
    right.power_cut()
    assert not right.pids(), right.pids()
    print("made", flush=True)
    signal.pause()


def marked(mark):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in pathlib.Path(f"/proc/{entry}/environ").read_bytes():
                found.append(entry)
        except OSError:
            continue
    return found


def surroundings():
    """Mounts, network devices and name of this machine, but for what C++ tests mount that run beside this one."""
    mounts = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in mounts if "/zeroth_test_" not in line], os.listdir("/sys/class/net"), os.uname().nodename


class PlaygroundTest(unittest.TestCase):
    def test_nothing_outlives_a_test_that_is_killed(self):
        mark = str(uuid.uuid4())
        before = surroundings()
        environment = {**os.environ, MARK: mark}
        with subprocess.Popen([sys.executable, "-B", __file__, "live"], stdout=subprocess.PIPE, text=True,
                              env=environment) as process:
            said = process.stdout.readline()
            if said.startswith("skipped: "):
                print(said)
                sys.exit(playground.SKIPPED)
            self.assertEqual(said, "made\n")
            self.assertGreater(len(marked(mark.encode())), 3)
            process.kill()
        self.assertTrue(playground.eventually(lambda: not marked(mark.encode())), marked(mark.encode()))
        self.assertEqual(surroundings(), before)


if __name__ == "__main__":
    live() if sys.argv[1:] == ["live"] else unittest.main(argv=sys.argv[:1])
