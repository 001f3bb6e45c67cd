"""Programs with an end: what they printed, how they ended, and nothing of them left."""
import dataclasses
import os
import signal
import subprocess
import time


@dataclasses.dataclass
class Done:
    code: int
    output: str
    seconds: float
    late: bool  # killed at its limit

    @property
    def ok(self):
        return self.code == 0 and not self.late

    def end(self, characters=400):
        """For a failure's reason: how it ended, and its last words."""
        how = "killed at its limit" if self.late else f"exit code {self.code}"
        return f"{how} after {self.seconds:.0f} s: " + " ".join(self.output.split())[-characters:]


def end_all(child):
    """Kills what is left of a process that leads its own session."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def last_words(child):
    """Both streams of a process that leads its own session, which is asked to end first: a test program then prints its log."""
    os.killpg(child.pid, signal.SIGTERM)
    try:
        return child.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired:
        end_all(child)
        return child.communicate()[0]


def run(words, limit, env=None, folder=None, log=None):
    """Both streams as one text, also in the file `log`."""
    begin = time.monotonic()
    child = subprocess.Popen([str(word) for word in words], env=env, cwd=folder, stdin=subprocess.DEVNULL, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", start_new_session=True)
    late = False
    try:
        output, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        late = True
        output = last_words(child)
    finally:
        end_all(child)
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{' '.join(str(word) for word in words)}\n{output}", encoding="utf-8")
    return Done(child.returncode, output, time.monotonic() - begin, late)
