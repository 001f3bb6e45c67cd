"""Two hosts of two ranks each, started in every way that there is, train as one host of four does; arguments and
variables reach all ranks byte for byte.

usage: launchers_test.py BUILD_FOLDER
"""
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import unittest

import playground
import tiny_run
from playground import eventually
from tiny_run import Job, differences, strategy
from torchrun import Torchrun

BUILD = pathlib.Path(sys.argv[-1]).resolve()
ZEROTH, FINETUNE, ECHO = (BUILD / "bin" / name for name in ("zeroth", "finetune", "tests/rank_program"))
FULL = "ZEROTH_TEST_FULL" in os.environ
LIMIT = 120  # seconds, of what takes some

WORDS = ["I am 6' tall", 'I am 72" tall', '"translate English to Romanian: "',
         "I'm going to tell them \"DeepSpeed is the best\"", "", "$HOME `id` $(id) \\ %n %% !! * ~", "two\nlines\ttab",
         "caf\u00e9 \u2603", b"\xff\xfe", "-x", "--", ";&|<>(){}[]#"]
VARIABLES = {"ODD_SLURM": "64(x2)", "ODD_TEXT": "I'm 72\" $HOME `id` %n \\ #;", "ODD_PATH": "/a b:/c"}
LAUNCHERS = {"ssh": ["ssh"], "pdsh": ["pdsh"], "openmpi": ["mpirun.openmpi", "orted"], "mpich": ["mpirun.mpich"],
             "slurm": ["slurmctld", "slurmd", "srun", "sinfo"]}


class Slurm:
    """A controller on the head, and a node on each host."""

    def __init__(self, hosts):
        (GROUND.folder / "slurm").mkdir()
        nodes = "".join(f"NodeName={host.name} NodeAddr={host.address} CPUs=2 State=UNKNOWN\n" for host in hosts)
        self.conf = GROUND.write("slurm.conf", f"""ClusterName=test
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/linear
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
AuthInfo=cred_expire=5
RequeueExit=75
StateSaveLocation={GROUND.folder}/slurm
SlurmctldPidFile={GROUND.folder}/slurm/pid
SlurmdSpoolDir=/run/spool
SlurmdPidFile=/run/slurmd.pid
{nodes}PartitionName=main Nodes=ALL Default=YES State=UP
""")
        self.environment = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.daemons = [self.start(GROUND.folder / "slurm.log", ["slurmctld", "-D", "-f", self.conf])]
        for host in hosts:
            words = ["env", f"SLURM_CONF={self.conf}", "slurmd", "-D", "-f", self.conf, "-N", host.name]
            self.daemons.append(self.start(GROUND.folder / f"{host.name}.log", host.enter(*words)))

    def start(self, log, words):
        with open(log, "w") as file:
            return subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=file,
                                    stderr=subprocess.STDOUT, env=self.environment)

    def is_up(self):
        said = subprocess.run(["sinfo", "-h", "-N", "-o", "%t"], env=self.environment, capture_output=True, text=True)
        return said.stdout.split() == ["idle", "idle"]

    def end(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(GROUND.folder / "slurm")


def mpirun_of(kind):
    """PATH with the mpirun of one kind first: where several are installed only one has the name."""
    script = GROUND.write(f"{kind}/mpirun", f"#!/bin/sh\nexec {shutil.which(f'mpirun.{kind}')} \"$@\"\n")
    script.chmod(0o755)
    return f"{script.parent}:{os.environ['PATH']}"


class Launchers(unittest.TestCase):
    def leave_out(self, reason):
        (self.fail if playground.REQUIRED in os.environ else self.skipTest)(reason)

    def environment(self, launcher):
        """Skips the test, or lets it fail, where that launcher is not there."""
        if absent := playground.missing(LAUNCHERS[launcher]):
            self.leave_out(f"{', '.join(absent)} not installed")
        if launcher in ("openmpi", "mpich"):
            return {"PATH": mpirun_of(launcher), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if launcher != "slurm":
            return {}
        slurm = Slurm(HOSTS)
        self.addCleanup(slurm.end)
        log = GROUND.folder / "slurm.log"
        self.assertTrue(eventually(slurm.is_up, interval=0.1), log.read_text()[-2000:])
        return {"SLURM_CONF": str(slurm.conf)}

    def starter(self, launcher):
        return [ZEROTH, "--hostfile", GROUND.folder / "hosts", "--launcher", launcher, "--no_bind_cores_to_rank"]

    def expect_trained(self, jobs, stage, tensor):
        for job in jobs:
            self.addCleanup(job.end)
        for job in jobs:
            self.assertEqual(job.wait(LIMIT), 0, f"{job.words}\n{job.said()}")
        self.assertIn("hosts      left (ranks 0, 1), right (ranks 2, 3)", jobs[0].out)
        self.assertRegex(jobs[0].out, r"links      .* inter-node .* per host by eth0\n")
        self.assertEqual(differences(jobs[0], reference(stage, tensor)), [])

    def expect_nothing_left(self):
        for host in HOSTS:
            self.assertTrue(eventually(lambda host=host: not host.ranks() + host.agents()), host.strays())
            self.assertEqual(host.call("find", "/tmp", "/dev/shm", "-xdev", "-type", "f", "-name", "*zeroth*"), "")

    def train(self, launcher, rows):
        environment = self.environment(launcher)
        starter = [*self.starter(launcher), "finetune"]
        jobs = [Job(GROUND.folder, f"{launcher}-{stage}-{tensor}", starter, strategy(stage, tensor),
                    environment=environment) for stage, tensor in rows]  # beside each other: they mostly wait
        for (stage, tensor), job in zip(rows, jobs):
            with self.subTest(launcher=launcher, stage=stage, tensor=tensor):
                self.expect_trained([job], stage, tensor)
        self.expect_nothing_left()
        with self.subTest(launcher=launcher, case="words"):
            self.expect_words(launcher, environment)

    def expect_words(self, launcher, environment):
        file = GROUND.write("environment", "".join(f"{name}={value}\n" for name, value in VARIABLES.items()))
        environment = {**os.environ, **tiny_run.ENVIRONMENT, "DS_ENV_FILE": str(file), **environment}
        for mode, expected in ((["args", *WORDS], [b"<" + os.fsencode(word) + b">" for word in WORDS]),
                               (["env", *VARIABLES], [os.fsencode(f"{k}={v}") for k, v in VARIABLES.items()])):
            said = subprocess.run([*self.starter(launcher), ECHO, *mode], stdin=subprocess.DEVNULL, capture_output=True,
                                  env=environment, timeout=LIMIT)
            self.assertEqual(said.returncode, 0, said.stderr)
            for rank in range(4):
                mark = b"[%d] " % rank
                lines = [line[len(mark):] for line in said.stdout.split(b"\n") if line.startswith(mark)]
                self.assertEqual(b"\n".join(lines), b"\n".join(expected), f"rank {rank}")

    def test_ssh(self):
        rows = [(stage, tensor) for stage in range(4) for tensor in (1, 2)]
        self.train("ssh", [(stage, tensor) for stage, tensor in rows if FULL or tensor == 1 or stage == 2])

    def test_pdsh(self):
        self.train("pdsh", others())

    def test_openmpi(self):
        self.train("openmpi", others())

    def test_mpich(self):
        self.train("mpich", others())

    def test_slurm(self):
        self.train("slurm", others())

    def test_slurm_starts_again_what_ends_with_the_code_to_be_requeued(self):
        environment = {**os.environ, **self.environment("slurm"), "ZEROTH_SECRET": "of this run alone"}
        for host in HOSTS:
            self.addCleanup(host.limit_rate, None)
            host.limit_rate("4mbit")  # a step then takes half a second
        script = GROUND.write("again.sh", f"""#!/bin/sh
srun --kill-on-bad-exit=0 --no-kill --cpu-bind=none {ZEROTH} --num_gpus 2 --no_bind_cores_to_rank --elastic 2:2 \\
  finetune "$@"
""")
        said = GROUND.write("again.out", "")
        starter = ["sbatch", "--wait", "--nodes=2", "--ntasks-per-node=1", "--open-mode=append", "--output", said,
                   script]
        job = Job(GROUND.folder, "again", starter, strategy(2), "--output", GROUND.folder / "kept", "--save-every", 100,
                  "--resume", "auto", environment=environment)
        self.addCleanup(job.end)
        self.assertTrue(eventually(lambda: 3 in job.steps(), LIMIT), said.read_text())
        number = re.search("[0-9]+", job.out)[0]
        subprocess.run(["scancel", "--signal=TERM", number], env=environment, check=True)
        self.assertTrue(eventually(lambda: "Restarts=1" in self.of_job(number, environment), LIMIT), said.read_text())
        for host in HOSTS:
            host.limit_rate(None)
        self.assertTrue(eventually(lambda: "JobState=COMPLETED" in self.of_job(number, environment), LIMIT),
                        said.read_text() + self.of_job(number, environment))
        self.assertEqual(differences(job, reference(2, 1)), [])
        self.expect_nothing_left()

    def of_job(self, number, environment):
        told = subprocess.run(["scontrol", "show", "job", number], env=environment, capture_output=True, text=True)
        return told.stdout

    def start_by_variables(self, name, stage, master, port):
        """Each rank by itself, as torchrun has it."""
        jobs = []
        for rank in range(4):
            variables = {"RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank % 2, "LOCAL_WORLD_SIZE": 2,
                         "GROUP_RANK": rank // 2, "GROUP_WORLD_SIZE": 2, "MASTER_ADDR": master, "MASTER_PORT": port}
            environment = {name: str(value) for name, value in variables.items()}
            environment["ZEROTH_SECRET"] = "of this run alone"
            jobs.append(Job(GROUND.folder, name, HOSTS[rank // 2].enter(FINETUNE), strategy(stage),
                            environment=environment, part=rank))
        return jobs

    def test_variables_of_torchrun(self):
        for stage, tensor in others():
            self.expect_trained(self.start_by_variables(f"variables-{stage}", stage, HOSTS[0].address, 29600 + stage),
                                stage, tensor)
        self.expect_nothing_left()

    def test_master_whose_name_is_a_loopback_address_at_home(self):
        """As Debian's installer writes it into /etc/hosts. The hosts' addresses have no names, of which c10d warns."""
        left, right = HOSTS
        nobody = GROUND.write("resolv.conf", "")
        for host, line in ((left, "127.0.1.1 left"), (right, f"{left.address} left")):
            names = GROUND.write(f"{host.name}.hosts", f"127.0.0.1 localhost\n{line}\n")
            for file, place in ((names, "/etc/hosts"), (nobody, "/etc/resolv.conf")):
                host.call("mount", "--bind", file, place)
                self.addCleanup(host.call, "umount", place)
        left.call("ip", "route", "add", "default", "dev", "eth0")
        self.addCleanup(left.call, "ip", "route", "del", "default")
        jobs = self.start_by_variables("at-home", 2, left.name, 29620)
        self.expect_trained(jobs, 2, 1)
        for job in jobs:
            self.assertNotIn("c10d", job.err)

    def start_by_torchrun(self, name, port, flags, more=()):
        """An agent on each host, the first of which serves the store."""
        torchrun = the_torchrun()
        if torchrun.why_not:
            self.leave_out(torchrun.why_not)
        words = torchrun.words(2, 2, f"{HOSTS[0].name}:{port}", "--rdzv-id", name, *flags)
        environment = {**torchrun.environment, "ZEROTH_SECRET": "of this run alone"}
        return [Job(GROUND.folder, name, host.enter(*words, FINETUNE), strategy(2), *more, environment=environment,
                    part=number) for number, host in enumerate(HOSTS)]

    def test_torchrun(self):
        self.expect_trained(self.start_by_torchrun("torchrun", 29700, ()), 2, 1)
        self.expect_nothing_left()

    def test_torchrun_goes_on_without_a_rank(self):
        for host in HOSTS:
            self.addCleanup(host.limit_rate, None)
            host.limit_rate("4mbit")  # a step then takes half a second
        jobs = self.start_by_torchrun("rounds", 29710, ("--max-restarts", "1"),
                                      ("--output", GROUND.folder / "saved", "--save-every", 2, "--resume", "auto"))
        for job in jobs:
            self.addCleanup(job.end)
        self.assertTrue(eventually(lambda: jobs[0].steps(), LIMIT), jobs[0].said())
        rank = HOSTS[1].ranks()[0]  # looked for before step 3, as that takes a while
        self.assertTrue(eventually(lambda: 3 in jobs[0].steps(), LIMIT), jobs[0].said())
        os.kill(rank, signal.SIGKILL)
        for host in HOSTS:
            host.limit_rate(None)
        self.expect_trained(jobs, 2, 1)
        self.assertRegex(jobs[0].out, r"round      1 ")
        self.expect_nothing_left()


@functools.cache
def the_torchrun():
    return Torchrun(FINETUNE, GROUND.folder / "libraries")


def others():
    return [(stage, 1) for stage in (range(4) if FULL else (2,))]


REFERENCES = {}


def reference(stage, tensor):
    """The same on one host."""
    if (stage, tensor) not in REFERENCES:
        starter = [ZEROTH, "--num_gpus", "4", "--no_bind_cores_to_rank", "finetune"]
        job = Job(GROUND.folder, f"one-{stage}-{tensor}", starter, strategy(stage, tensor))
        if job.wait(LIMIT) != 0:
            raise AssertionError(job.said())
        REFERENCES[stage, tensor] = job
    return REFERENCES[stage, tensor]


if __name__ == "__main__":
    GROUND = playground.enter([BUILD, tiny_run.SOURCES])
    HOSTS = GROUND.add_hosts("left", "right")
    tiny_run.make_inputs(GROUND.folder)
    GROUND.write("hosts", "left slots=2\nright slots=2\n")
    unittest.main(argv=sys.argv[:-1], verbosity=2)
