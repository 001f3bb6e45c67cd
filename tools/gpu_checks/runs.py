"""Runs: one training run of ours, one of another trainer, one test program."""
import concurrent.futures
import contextlib
import json
import re
import threading
import time

from gpu_checks import commands, models
from gpu_checks.setup import ROOT

PEER = ROOT / "bench/peer.py"  # not beside us: `profile` is a module of Python's, too, and a script's folder comes first


class Failed(Exception):
    """A run that did not end well; the text says how."""


def train(setup, shape, name, config, *, steps, micro_batch, ranks=1, limit=150, flags=(), launch=(), env=None,
          accumulation=1, data="tokens.bin"):
    """models.measured() of `finetune` on random weights; raises Failed."""
    folder = models.prepare(setup, shape)
    metrics, log = setup.out / "runs" / f"{name}.jsonl", setup.out / "runs" / f"{name}.log"
    metrics.parent.mkdir(parents=True, exist_ok=True)
    metrics.unlink(missing_ok=True)
    words = [setup.finetune()] if ranks == 1 and not launch else setup.launch(ranks, *launch)
    words += ["--model", folder, "--data", folder / data, "--seq-len", shape.seq, "--steps", steps, "--no-shuffle",
              "--deepspeed", config, "--metrics", metrics, *flags]
    done = commands.run(words, limit, setup.environment(**(env or {})), setup.scratch, log)
    if not done.ok:
        raise Failed(f"{name}: {done.end()}")
    result = models.measured(metrics, shape, micro_batch * accumulation * ranks * shape.seq)
    result["output"] = done.output
    return result


def peer(launcher, trainer, folder, config, *, device, seq, steps, tokens_a_step, log, limit, skip=2, env=None):
    """The same of another trainer, by bench/peer.py behind the launcher's words; raises Failed."""
    result = log.with_suffix(".json")
    result.unlink(missing_ok=True)
    words = [*launcher, PEER, trainer, "--device", device, "--model", folder, "--config", config, "--seq", seq, "--steps",
             steps, "--result", result, "--launched-at", time.time()]
    done = commands.run(words, limit, env, log.parent, log)
    if not done.ok or not result.exists():
        raise Failed(f"{log.stem}: {done.end()}")
    found = json.loads(result.read_text())
    return {**found, **models.timed(found["ends"], tokens_a_step, skip)}


@contextlib.contextmanager
def watched(setup):
    """A list, which gets (W, MHz) of the GPU three times a second."""
    seen, over = [], threading.Event()

    def look():
        while True:
            words = re.findall(r"[\d.]+", setup.asked("power.draw,clocks.sm"))
            if len(words) == 2:
                seen.append(tuple(map(float, words)))
            if over.wait(0.3):
                return

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()


def settled(setup, work):
    """What the second of two runs measured, with the clock at the most power: the first one meets cold files and a cold GPU. A
    dry run has one."""
    if not setup.dry:
        work()
    with watched(setup) as seen:
        found = work()
    found["clock"] = "{1:.0f} MHz at {0:.0f} W".format(*max(seen)) if seen else "?"
    return found


def attempt(record, name, work):
    """What `work` returns, or None where it failed, which is a failed check."""
    try:
        return work()
    except Failed as error:
        record.check(name, False, why=str(error))
        return None


SUMMARY = re.compile(r"test cases: *(\d+) \| *(\d+) passed \| *(\d+) failed")


def at_once(works, most=4):
    """Calls all of them, up to `most` at a time: for what is not timed. Returns what they return, in their order."""
    with concurrent.futures.ThreadPoolExecutor(most) as pool:
        return list(pool.map(lambda work: work(), works))


def doctest(setup, record, name, program, arguments, limit, env=None, wrap=()):
    """One check of a test program, with the seconds of each case; `wrap` stands before it. Returns commands.Done."""
    slug = re.sub(r"[^\w]+", "-", name).strip("-")
    done = commands.run([*wrap, program, "-d", *arguments], limit, setup.environment(**(env or {})), setup.scratch,
                        setup.out / "runs" / f"{slug}.log")
    found = SUMMARY.search(done.output)
    passed = done.ok and found is not None and int(found[2]) > 0 and int(found[3]) == 0
    figure = f"{found[2]} of {found[1]} test cases in {done.seconds:.0f} s" if found else ""
    record.check(name, passed, figure, done.end())
    return done
