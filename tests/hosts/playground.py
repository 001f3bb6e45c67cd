"""Hosts on one machine: namespaces of network, processes, names, mounts and shared memory, joined by a bridge.

A test calls enter() first: its process then lives in namespaces of its own, within which it makes the hosts. Nothing of
them outlives it, however it ends: no process, link, mount or file.
"""
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

SKIPPED = 77  # SKIP_RETURN_CODE in CMakeLists.txt
INSIDE = "ZEROTH_TEST_PLAYGROUND"
REQUIRED = "ZEROTH_TEST_REQUIRED"  # set where all tools are there: CI installs them
TOOLS = ("unshare", "nsenter", "ip", "tc", "mount", "/usr/sbin/sshd", "ssh", "ssh-keygen")
NAMESPACES = ("--net", "--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
PORT = 2222  # of sshd on every host
NETWORK = "10.214.7"  # within the test's own namespace


def leave_out(reason):
    print(f"skipped: no hosts in namespaces here: {reason}")
    sys.exit(SKIPPED)


def missing(tools):
    return [tool for tool in tools if not shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")]


def enter(must_be_seen):
    """Goes on in namespaces of its own, or leaves the test out where there can be none. `must_be_seen`: folders that
    hosts need as they are."""
    if INSIDE not in os.environ:
        if os.geteuid() != 0:
            leave_out("not root")
        if absent := missing(TOOLS):
            if REQUIRED in os.environ:
                sys.exit(f"{', '.join(absent)} not installed")
            leave_out(f"{', '.join(absent)} not installed")
        makes = "ip link add bridge type bridge && mount -t tmpfs tmpfs /run"
        probe = subprocess.run(["unshare", *NAMESPACES, "sh", "-c", makes], stderr=subprocess.PIPE, text=True)
        if probe.returncode != 0:
            leave_out(probe.stderr.strip())
        os.environ[INSIDE] = "1"
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        os.execvp("unshare", ["unshare", *NAMESPACES, sys.executable, "-B", *sys.argv])
    return Playground(must_be_seen)


def call(*words):
    result = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=60)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(str(word) for word in words)}: {result.stdout.strip()}")
    return result.stdout


def eventually(condition, seconds=60, interval=0.005):
    """The condition's last value."""
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(interval)
    return value


def hide_tmp(seen):
    """Shell commands after which /tmp is a host's own, but for what all see there; /run must be its own by then."""
    kept = [(shlex.quote(str(path)), f"/run/seen{i}") for i, path in enumerate(seen)
            if pathlib.Path("/tmp") in path.parents]
    return "\n".join([*(f"mkdir -p {aside}; mount --bind {path} {aside}" for path, aside in kept),
                      "mount -t tmpfs -o size=32m,mode=1777 tmpfs /tmp",
                      *(f"mkdir -p {path}; mount --bind {aside} {path}" for path, aside in kept)])


class Host:
    """Reached by its name. /tmp, /run, /dev/shm and `disk` are its own, in memory; other folders are all hosts'."""

    def __init__(self, ground, name, number):
        self.ground, self.name, self.address = ground, name, f"{NETWORK}.{number}"
        self.link = f"v{number}"
        self.disk = ground.folder / "own"
        call("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self._begin()))
        call("ip", "link", "set", self.link, "master", "bridge", "up")
        self.call("sh", "-euc", f"""
            hostname {name}
            mount -t tmpfs -o size=64m tmpfs /dev/shm
            mount -t tmpfs tmpfs /run; mkdir /run/sshd
            mount -t tmpfs -o size=32m tmpfs {self.disk}
            {hide_tmp(ground.seen)}
            echo 00000000-0000-4000-8000-{number:012d} >/run/boot_id
            mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
            ip link set lo up; ip addr add {self.address}/24 dev eth0; ip link set eth0 up
            /usr/sbin/sshd -q -f {ground.folder}/sshd_config""")
        self.at_rest = set(self.pids())

    def _begin(self):
        # Its first process does what init does: it reaps.
        init = "sleep infinity & while :; do wait; done"
        self.process = subprocess.Popen(["unshare", *NAMESPACES, "sh", "-c", init], stdin=subprocess.DEVNULL)
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        if not eventually(lambda: children.read_text()):
            raise RuntimeError(f"host {self.name}: no first process")
        self.init = int(children.read_text())
        self.namespace = os.readlink(f"/proc/{self.init}/ns/pid")
        eventually(lambda: os.readlink(f"/proc/{self.init}/exe") != shutil.which("unshare"))
        return self.init

    def enter(self, *words):
        return ["nsenter", "-t", str(self.init), "-n", "-p", "-m", "-u", "-i", "--", *(str(word) for word in words)]

    def call(self, *words):
        return call(*self.enter(*words))

    def processes(self):
        """Number in the test's own namespace, and words, of all that are not dead."""
        found = {}
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.readlink(f"/proc/{entry}/ns/pid") == self.namespace:
                    if words := pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().rstrip(b"\0"):
                        found[int(entry)] = words.decode(errors="replace").split("\0")
            except OSError:
                continue  # it has ended
        return found

    def pids(self, program=""):
        """Of all, or of those that run a program whose name ends so."""
        return sorted(pid for pid, words in self.processes().items() if words[0].endswith(program))

    def ranks(self):
        return self.pids("finetune")

    def agents(self):
        return sorted(pid for pid, words in self.processes().items() if words[1:2] == ["agent"])

    def strays(self):
        """What runs that did not before the first job."""
        return [f"{pid} {' '.join(words)}" for pid, words in self.processes().items() if pid not in self.at_rest]

    def cut(self):
        call("ip", "link", "set", self.link, "down")

    def join(self):
        call("ip", "link", "set", self.link, "up")

    def limit_rate(self, rate):
        """Both ways, as tc has it: 8mbit; None: as fast as it goes."""
        for prefix, device in ((self.enter(), "eth0"), ([], self.link)):
            bucket = ["tbf", "rate", rate, "burst", "16k", "latency", "2s"] if rate else ["noqueue"]
            call(*prefix, "tc", "qdisc", "replace", "dev", device, "root", *bucket)

    def stop(self):
        """All of its processes stand still; those that one of them starts meanwhile, too."""
        stopped = set()
        while fresh := set(self.pids()) - stopped:
            for pid in fresh:
                send(pid, signal.SIGSTOP)
            stopped |= fresh

    def wake(self):
        for pid in self.pids():
            send(pid, signal.SIGCONT)

    def power_cut(self):
        """No word goes out of it any more, not even that its connections end."""
        self.cut()
        os.kill(self.init, signal.SIGKILL)
        self.process.wait(timeout=30)


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Playground:
    """`folder` is what all hosts see, in memory; this process is on the bridge, too, as the host `head`."""

    def __init__(self, must_be_seen):
        seen = [pathlib.Path(path).resolve() for path in must_be_seen]
        self.folder = next(folder for folder in map(pathlib.Path, ("/mnt", "/media", "/srv"))
                           if folder.is_dir() and not any(folder in path.parents for path in seen))
        self.seen = [path if path.is_dir() else path.parent for path in seen]
        self.hosts = []
        call("mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", self.folder)
        (self.folder / "own").mkdir()
        call("hostname", "head")
        call("ip", "link", "set", "lo", "up")
        call("ip", "link", "add", "bridge", "type", "bridge")
        call("ip", "addr", "add", f"{NETWORK}.254/24", "dev", "bridge")
        call("ip", "link", "set", "bridge", "up")
        self._make_keys()

    def _make_keys(self):
        """Of the user and of all hosts, and what ssh is told of both; none of it outside of these namespaces."""
        for key in ("host", "user"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key)
        self.write("sshd_config", f"Port {PORT}\nHostKey {self.folder}/host\n"
                   f"AuthorizedKeysFile {self.folder}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
                   "PasswordAuthentication no\nMaxStartups 100\n")
        known = self.write("known", f"* {(self.folder / 'host.pub').read_text()}")
        config = self.write("ssh_config", f"Port {PORT}\nIdentityFile {self.folder}/user\nIdentitiesOnly yes\n"
                            f"UserKnownHostsFile {known}\nStrictHostKeyChecking yes\nLogLevel ERROR\n")
        call("mount", "--bind", config, "/etc/ssh/ssh_config")

    def add_hosts(self, *names):
        lines = [f"127.0.0.1 localhost\n{NETWORK}.254 head\n"]
        lines += [f"{NETWORK}.{number} {name}\n" for number, name in enumerate(names, 1)]
        call("mount", "--bind", self.write("etc_hosts", "".join(lines)), "/etc/hosts")
        self.hosts = [Host(self, name, number) for number, name in enumerate(names, 1)]
        try:  # a root that is none outside has too few users for sshd
            call("ssh", names[0], "true")
        except RuntimeError as error:
            leave_out(f"sshd lets nobody in: {error}")
        return self.hosts

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path
