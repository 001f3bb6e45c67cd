"""The parts by name, each run in a process of its own: one that hangs or crashes leaves the others alone."""
import importlib
import signal
import subprocess
import sys
import time
import traceback

from gpu_checks import results
from gpu_checks.commands import end_all

# Which parts a call has, for a machine that is there for one command at a time: CALL_SECONDS at most.
CALLS = {1: ("machine", "tests"), 2: ("profile", "speed"), 3: ("offload", "lora"), 4: ("sanitize", "nccl")}
NAMES = tuple(name for names in CALLS.values() for name in names)
CALL_SECONDS = 480


def run_here(name, setup):
    """Runs a part in this process; an exception of its own is a failed check."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through every `finally`: its programs end with it
    record = results.Record(setup, name)
    begin = time.monotonic()
    try:
        importlib.import_module(f"gpu_checks.{name}").run(setup, record)
    except Exception:
        record.check("the part itself", False, why=traceback.format_exc(limit=4))
    record.end(time.monotonic() - begin)
    return 0


def end(child):
    """Asks the part first, which ends the programs that it runs."""
    child.terminate()
    try:
        child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        pass
    end_all(child)


class Clock:
    """What is left of the seconds for all."""

    def __init__(self, total):
        self.total, self.begin = total, time.monotonic()

    def left(self):
        return self.total - (time.monotonic() - self.begin)

    def __str__(self):
        return f"the {self.total:g} s of --total"


def run_apart(name, setup, clock):
    """Runs a part in a process of its own, within its limit; its result is on disk afterwards, whatever happened. False: so
    little is left of the time for all that it was not begun."""
    limit, left = setup.options.limit, clock.left()
    if left < limit / 8:
        return False
    print(f"{name}:", flush=True)
    path = results.path_of(setup, name)
    path.unlink(missing_ok=True)
    begin, why = time.monotonic(), ""
    given = min(limit, left)
    child = subprocess.Popen([sys.executable, "-B", setup.root / "tools/gpu_check", name, "--one", *setup.arguments(given)],
                             start_new_session=True)
    try:
        code = child.wait(timeout=given)
        why = "" if code == 0 else f"its process ended with {code}"
    except subprocess.TimeoutExpired:
        why = f"not over after {given:.3g} s" + (f", what was left of {clock}" if left < limit else "")
    finally:  # an interrupted run, too, ends what it started
        end(child)
    part = results.load(path)
    if why or part is None or part["status"] == "running":
        results.end_early(path, name, why or "it left no result", time.monotonic() - begin)
    return True
