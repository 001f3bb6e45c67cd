#!/usr/bin/env python3
"""Writes tests/trainer/fixtures/results: what transformers' Trainer and run_clm.py leave beside a model.

Needs torch and transformers: python tools/make_results_fixtures.py
Two epochs of the tiny Llama of tests/model/fixtures on 24 rows, evaluated on 10 and saved every 5 of 12 steps, logged every 3;
then, as run_clm.py does, save_metrics and save_state, and an evaluation. made_by.json says which versions did it.
"""
import json
import math
import pathlib
import tempfile

import torch
import transformers

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
OUT = TESTS / "trainer/fixtures/results"
FILES = ("trainer_state.json", "all_results.json", "train_results.json", "eval_results.json")
VOCAB, LENGTH, TRAINED, EVALUATED = 64, 32, 24, 10


def rows(count, first):
    ids = [[(s * 37 + t * (s % 5 - 1) + t * t * (s % 3)) % VOCAB for t in range(LENGTH)] for s in range(first, first + count)]
    return [{"input_ids": torch.tensor(row), "labels": torch.tensor(row)} for row in ids]


def arguments(output_dir):
    return transformers.TrainingArguments(
        output_dir=output_dir,
        use_cpu=True,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        learning_rate=1e-3,
        logging_steps=3,
        eval_strategy="steps",
        eval_steps=5,
        save_steps=5,
        save_only_model=True,
        load_best_model_at_end=True,
        report_to="none",
        disable_tqdm=True,
    )


def main():
    model = transformers.AutoModelForCausalLM.from_pretrained(TESTS / "model/fixtures/llama", dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            model=model, args=arguments(folder), train_dataset=rows(TRAINED, 0), eval_dataset=rows(EVALUATED, TRAINED)
        )
        trained = trainer.train().metrics
        trainer.save_metrics("train", {**trained, "train_samples": TRAINED})
        trainer.save_state()
        evaluated = trainer.evaluate()
        perplexity = math.exp(evaluated["eval_loss"])
        trainer.save_metrics("eval", {**evaluated, "eval_samples": EVALUATED, "perplexity": perplexity})
        OUT.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = (pathlib.Path(folder) / name).read_text(encoding="utf-8").replace(folder, "out")
            (OUT / name).write_text(text, encoding="utf-8")
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    (OUT / "made_by.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
