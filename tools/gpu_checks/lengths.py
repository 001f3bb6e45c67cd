"""Steps of samples of many lengths: each length that is new may cost cuDNN's attention a plan."""
import dataclasses
import json
import random
import shutil
import statistics

from gpu_checks import models
from gpu_checks.runs import train

TOKENIZER = "tests/data/fixtures/gpt2"


def samples(path, shape, count):
    """Lines of text, few of which have more than shape.seq tokens: three a word."""
    drawn = random.Random(0)
    words = ["the ", "sum ", "of a ", "row "]
    path.write_text("".join(json.dumps({"text": "".join(drawn.choices(words, k=drawn.randint(1, shape.seq // 3)))}) + "\n"
                            for _ in range(count)))


def slow(steps):
    """(median, longest, how many take more than twice the median) of seconds."""
    usual = statistics.median(steps)
    return usual, max(steps), sum(step > 2 * usual for step in steps)


def run(setup, record, shape):
    count = 6 if setup.dry else 60
    if setup.dry:
        shape = dataclasses.replace(shape, name=f"{shape.name}, longer", seq=512)
    folder = models.prepare(setup, shape)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(setup.root / TOKENIZER / name, folder)
    samples(folder / "mixed.jsonl", shape, 4 * count)
    config = models.ds_config(setup.out / "runs/lengths.json", 4)
    found = train(setup, shape, "lengths", config, steps=count, micro_batch=4, limit=90, data="mixed.jsonl")
    ends = [row["since_start_s"] for row in found["rows"]]
    usual, longest, many = slow([after - before for before, after in zip(ends[1:], ends[2:])])
    lengths = len({row["tokens"] for row in found["rows"]})
    record.check("samples of mixed lengths", lengths > count / 4, why=f"{lengths} lengths in {count} steps", figure=f"a step {1e3 * usual:.0f} ms in the middle, {1e3 * longest:.0f} ms at "
                 f"most; {many} of {count - 2} above twice the middle one; {lengths} numbers of tokens")
