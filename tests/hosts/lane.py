"""Two hosts at which runs meet faults, one run at a time; several lanes run beside each other."""
import signal
import subprocess

import playground
from playground import eventually, send
from tiny_run import Job, strategy

RATE = "8mbit"  # a step then takes a quarter of a second
STEP = 4  # whose moments are waited for; it is evaluated and saved, as 2, 6 and 8 are
OFTEN = ("--eval-every", 2, "--save-every", 2)
LIMIT = 120  # seconds, of what takes a few
MOMENTS = ("load", "step", "evaluation", "save")


class Missed(Exception):
    """The run went past the moment before it could be stopped, and ended well."""


class Lane:
    def __init__(self, ground, number, programs):
        """Before the hosts are made. `disk`: of both, for what runs write."""
        self.ground, self.programs, self.names = ground, programs, (f"left{number}", f"right{number}")
        self.disk = ground.folder / f"disk{number}"
        self.disk.mkdir()
        playground.call("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", self.disk)
        self.hostfile = ground.write(f"hosts{number}", "".join(f"{name} slots=2\n" for name in self.names))

    def take_hosts(self, hosts):
        self.left, self.right = self.hosts = [host for host in hosts if host.name in self.names]

    def launcher(self, flags, silence):
        """`silence`: seconds after which the other side is lost; None: as zeroth has it, which takes no other."""
        if silence is None:
            return [self.programs / "zeroth", "--hostfile", self.hostfile, "--launcher", "ssh",
                    "--no_bind_cores_to_rank", *flags, "finetune"]
        return [self.programs / "tests/hosts_program", "--hosts", ",".join(f"{name}:2" for name in self.names),
                "--silence", 1000 * silence, "--env", "OMP_NUM_THREADS=1", "--", self.programs / "finetune"]

    def start(self, name, stage, flags=(), silence=None, offload=False, pipeline=1, more=()):
        zero = {"offload_optimizer": {"device": "nvme", "nvme_path": str(self.left.disk)}} if offload else {}
        self.output = self.disk / name
        return Job(self.ground.folder, name, self.launcher(flags, silence),
                   strategy(stage, pipeline=pipeline, **zero), *OFTEN, "--eval-data", self.ground.folder / "test.jsonl", "--output", self.output, *more,
                   environment={"HOSTS_SSH": "ssh"})

    def ranks(self):
        return [pid for host in self.hosts for pid in host.ranks()]

    def running(self):
        """What no host ran before. Not sshd, which tries for long to tell a client that is cut off of the end."""
        return [stray for host in self.hosts for stray in host.strays() if " sshd: " not in stray]

    def is_there(self, moment, job):
        """Between the beginning and the end of that moment of the run."""
        steps = job.steps()
        if moment == "load":
            return "ranks      4 on cpu" in job.out and not steps
        if moment == "step":
            return STEP - 1 in steps and STEP not in steps
        if moment == "evaluation":
            return STEP in steps and STEP not in job.evaluations()
        return any(self.output.glob(f"checkpoints/.tmp-step-{STEP}-*"))

    def catch(self, moment, job):
        """Ranks stand still at the moment: it was there before they were stopped, and is when all are."""
        eventually(lambda: len(self.ranks()) == 4 or job.wait(0) is not None, LIMIT)
        ranks = self.ranks()  # before the moment, as looking for them takes a while
        while True:
            come = eventually(lambda: self.is_there(moment, job) or job.wait(0) is not None, LIMIT, interval=0.001)
            if job.wait(0) == 0:
                raise Missed(f"{moment} did not come, or not for long enough\n{job.said()}")
            if not come or job.wait(0) is not None:
                raise AssertionError(f"{moment} did not come: exit code {job.wait(0)}\n{job.said()}")
            for pid in ranks:
                send(pid, signal.SIGSTOP)
            if self.is_there(moment, job):
                return
            for pid in ranks:
                send(pid, signal.SIGCONT)

    def go_on(self, hosts=None):
        """The ranks of these hosts, or of both, stand still no longer."""
        for host in hosts or self.hosts:
            for pid in host.ranks():
                send(pid, signal.SIGCONT)

    def repair(self):
        """Full disks are empty, links are there and fast, and all that stood still goes on."""
        for host in self.hosts:
            host.join()
            host.limit_rate(None)
            host.wake()
            host.call("rm", "-f", host.disk / "filler")
        (self.disk / "filler").unlink(missing_ok=True)

    def clear(self):
        """Whatever a row that failed has left."""
        for host in self.hosts:
            for pid in set(host.pids()) - host.at_rest:
                send(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", *self.disk.iterdir()], check=True)


def fill(*prefix, folder):
    """To the last byte, also again."""
    subprocess.run([*prefix, "sh", "-c", f"cat /dev/zero >>{folder}/filler"], stderr=subprocess.DEVNULL)
