"""A run on two hosts meets a fault at some moment: it goes on, or it ends everywhere with the cause, and what is then
started goes on as if nothing had been.

usage: faults_test.py [--elastic] BUILD_FOLDER [ROW]...

ROW: those whose names begin so, as rank-save; without any a few, or with ZEROTH_TEST_FULL all. --elastic: runs that
survive what they can.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import time
import traceback

import playground
import tiny_run
from lane import LIMIT, MOMENTS, OFTEN, RATE, Lane, Missed, fill
from playground import eventually, send
from tiny_run import Job, differences, strategy

LANES = 4
TRIES = 5  # to stop a run at its moment, of which a busy machine leaves little
FULL = "ZEROTH_TEST_FULL" in os.environ
ELASTIC = ("--elastic", "1:2", "--max-restarts", "3")


def kill_rank(lane, job):
    send(lane.right.ranks()[0], signal.SIGKILL)


def kill_agent(lane, job):
    send(lane.right.agents()[0], signal.SIGKILL)


def kill_launcher(lane, job):
    job.process.kill()


def cut_for_5_s(lane, job):
    lane.right.cut()
    lane.go_on()
    time.sleep(5)
    lane.right.join()


def cut(lane, job):
    lane.right.cut()


def stop_host(lane, job):
    lane.right.stop()


def fill_own_disk(lane, job):
    fill(*lane.right.enter(), folder=lane.right.disk)


def fill_common_disk(lane, job):
    fill(folder=lane.disk)


@dataclasses.dataclass
class Fault:
    act: callable  # with the lane and the job, while ranks stand still
    code: int = 0
    words: str = ""  # that the launcher says
    elastic: bool = True  # that an elastic run survives it
    silent: bool = False  # found out by silence alone
    offload: bool = False
    before: bool = False  # the job starts
    pipeline: int = 1  # stages
    waits: bool = False  # the run goes on once it is mended, and has said these words until then


SILENT = "host {right} is lost: no heartbeat for {silence} s; rank 2 ran there"
FAULTS = {
    "rank": Fault(kill_rank, 137, "zeroth: rank 2 on host {right} was killed by SIGKILL"),
    "agent": Fault(kill_agent, 1, "zeroth: host {right} is lost: the connection ended; rank 2 ran there"),
    "launcher": Fault(kill_launcher, -signal.SIGKILL, elastic=False),
    "pause": Fault(cut_for_5_s),
    "cut": Fault(cut, 1, SILENT, silent=True),
    "stopped": Fault(stop_host, 1, SILENT, silent=True),
    "disk": Fault(fill_own_disk, offload=True),  # whose room was taken when the run began
}
SPECIAL = {
    "disk-load": Fault(fill_own_disk, 1, " in files in {disk}, but its disk has 0 B free", elastic=False, offload=True,
                       before=True),
    "agent-step": Fault(kill_agent, 1, "zeroth: host {right} is lost: the connection ended; rank 2 ran there", pipeline=2),
    "disk-save": Fault(fill_common_disk, words="the model waits in memory until there is space", waits=True),
}
# Every fault and every moment.
FEW = ("rank-load", "rank-save", "agent-evaluation", "launcher-step", "pause-step", "cut-evaluation", "stopped-load",
       "disk-load", "disk-save")
FEW_ELASTIC = ("rank-save", "agent-step", "agent-evaluation", "stopped-load")


class Row:
    def __init__(self, fault, moment, elastic):
        self.name = f"{fault}-{moment}"
        self.fault, self.moment, self.elastic = SPECIAL.get(self.name, FAULTS[fault]), moment, elastic
        self.stage = (tuple(FAULTS).index(fault) + MOMENTS.index(moment)) % 4
        self.silence = 4 if self.fault.silent and not FULL and not elastic else None
        self.survives = self.fault.code == 0 or elastic and self.fault.elastic
        self.wrong = []

    def expect(self, condition, text):
        if not condition:
            self.wrong.append(text)

    def run(self, lane):
        """From the start again where the moment was missed."""
        for _ in range(TRIES - 1):
            try:
                return self.run_once(lane)
            except Missed:
                lane.repair()
                lane.clear()
                shutil.rmtree(lane.ground.folder / self.name)
        self.run_once(lane)

    def run_once(self, lane):
        start = {"offload": self.fault.offload, "pipeline": self.fault.pipeline, "stage": self.stage, "silence": self.silence,
                 "flags": ELASTIC if self.elastic else ()}
        for host in lane.hosts:
            host.limit_rate(RATE)
        if self.fault.before:
            self.fault.act(lane, None)
        job = lane.start(self.name, **start)
        try:
            self.meet(lane, job)
            lane.repair()
            if not self.survives:
                self.expect_whole(lane, job)
                job = lane.start(self.name, more=("--resume", "auto"), **start)
                self.expect(job.wait(LIMIT) == 0, f"started again: exit code {job.wait(0)}")
            self.expect_undisturbed(lane, job)
            eventually(lambda: not any(host.strays() for host in lane.hosts))
            self.expect(not (left := [host.strays() for host in lane.hosts if host.strays()]), f"left running: {left}")
        finally:
            job.end()
        if self.wrong:
            self.wrong.append(job.said())

    def meet(self, lane, job):
        """Until nothing of it runs any more."""
        if not self.fault.before:
            lane.catch(self.moment, job)
            self.fault.act(lane, job)
            lane.go_on([lane.left] if self.fault.act is stop_host else None)
        if self.fault.waits:  # the disk stays full, whatever a failed save has removed
            said = eventually(lambda: self.fault.act(lane, job) or self.fault.words in job.out + job.err, LIMIT)
            self.expect(said, f"the run does not say: {self.fault.words}")
            lane.repair()
        limit = LIMIT + 5 * (self.silence or 15) * self.fault.silent
        job.wait(limit)
        if self.fault.act is stop_host:
            lane.right.wake()
        self.expect(eventually(lambda: not lane.running(), limit), f"still there: {lane.running()}")
        code, silence = job.wait(0), self.silence or 15
        self.expect(code == (0 if self.survives else self.fault.code), f"exit code {code}")
        if not self.survives:
            names = {"right": lane.right.name, "silence": silence, "disk": lane.right.disk,
                     "output": lane.output}
            words = self.fault.words.format(**names)
            self.expect(words in job.err, f"the launcher does not say: {words}")
        if self.wrong:
            self.wrong.append(job.said())

    def expect_whole(self, lane, job):
        """The newest checkpoint; where none was saved there need be none."""
        if not any(lane.output.glob("checkpoints/step-*")):
            return self.expect(f"saved {lane.output}/checkpoints/" not in job.out, "no checkpoint is left")
        words = [lane.programs / "zeroth", "checkpoint", "verify", lane.output]
        said = subprocess.run(words, capture_output=True, text=True)
        self.expect(said.returncode == 0, said.stdout + said.stderr)

    def expect_undisturbed(self, lane, job):
        self.wrong += differences(job, REFERENCE)
        self.expect(place_in_data(lane.output) == place_in_data(UNDISTURBED), "another place in the data")
        found = os.listdir(lane.output / "checkpoints")
        left = [name for name in found if name[0] == "." and not name.startswith(".owner-")]
        left += set(os.listdir(lane.disk)) - {self.name}
        for host in lane.hosts:
            left += host.call("find", "/tmp", "/dev/shm", host.disk, "-mindepth", "1", "-xdev", "(", "!", "-type", "d",
                              "-o", "-empty", ")").split()
        self.expect(not left, f"left behind: {left}")


def place_in_data(output):
    counters = json.loads((output / f"checkpoints/step-{tiny_run.STEPS}/zeroth/manifest.json").read_text())["counters"]
    return {name: value for name, value in counters.items() if "data." in name}


def chosen_rows(names, elastic):
    rows = [Row(fault, moment, elastic) for fault in FAULTS for moment in MOMENTS]
    rows.sort(key=lambda row: not row.fault.silent)  # they wait most of the time
    if names:
        return [row for row in rows if any(row.name.startswith(name) for name in names)]
    return [row for row in rows if FULL or row.name in (FEW_ELASTIC if elastic else FEW)]


def run_in(lanes, row):
    lane = lanes.get()
    began = time.monotonic()
    try:
        row.run(lane)
    except Exception:
        row.wrong.append(traceback.format_exc())
    try:
        lane.repair()
        lane.clear()
    finally:
        lanes.put(lane)
    print(f"{'FAILED' if row.wrong else 'ok'}: {row.name}, stage {row.stage}, {time.monotonic() - began:.0f} s",
          *row.wrong, sep="\n  ", flush=True)
    return not row.wrong


def make_lanes(ground, programs):
    lanes = [Lane(ground, number, programs) for number in range(LANES)]
    hosts = ground.add_hosts(*(name for lane in lanes for name in lane.names))
    try:
        hosts[0].limit_rate(RATE)
    except RuntimeError as error:
        playground.leave_out(f"no slow link: {error}")
    free = queue.Queue()
    for lane in lanes:
        lane.take_hosts(hosts)
        free.put(lane)
    return free


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--elastic", action="store_true")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("rows", nargs="*")
    asked = parser.parse_args()
    PROGRAMS = asked.build.resolve() / "bin"
    GROUND = playground.enter([PROGRAMS, tiny_run.SOURCES])
    tiny_run.make_inputs(GROUND.folder)
    LANES_FREE = make_lanes(GROUND, PROGRAMS)
    UNDISTURBED = GROUND.folder / "undisturbed"
    alone = [PROGRAMS / "zeroth", "--num_gpus", "4", "--no_bind_cores_to_rank", "finetune"]
    REFERENCE = Job(GROUND.folder, "one", alone, strategy(2), *OFTEN, "--eval-data", GROUND.folder / "test.jsonl",
                    "--output", UNDISTURBED)
    if REFERENCE.wait(LIMIT) != 0:
        sys.exit(REFERENCE.said())
    with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
        good = list(pool.map(lambda row: run_in(LANES_FREE, row), chosen_rows(asked.rows, asked.elastic)))
    sys.exit(0 if good and all(good) else 1)
