#!/usr/bin/env python3
"""Makes examples/quickstart: a tokenizer trained on the data, a Llama's config.json without weights, the data.

usage: make_quickstart.py TRAIN.jsonl TEST.jsonl   (GSM8K problems with "question" and "answer")
Needs tokenizers and transformers; its output is committed, so that nobody who only trains needs them.
"""
import json
import pathlib
import shutil
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "examples" / "quickstart"
END = "<|endoftext|>"
VOCABULARY = 2048
POSITIONS = 1024


def texts(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row["question"]
        yield row["answer"]


def make_tokenizer(train):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(train), trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, model_max_length=POSITIONS
    )


def make_config():
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=3,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )


def main():
    train, test = (pathlib.Path(path) for path in sys.argv[1:3])
    model = FOLDER / "model"
    model.mkdir(parents=True, exist_ok=True)
    make_tokenizer(train).save_pretrained(model)
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings = {key: value for key, value in settings.items() if key != "backend"}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # the name that every version of transformers knows
    (model / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    config = make_config()
    config.save_pretrained(model)
    shutil.copyfile(train, FOLDER / "train.jsonl")
    shutil.copyfile(test, FOLDER / "test.jsonl")
    count = sum(p.numel() for p in LlamaForCausalLM(config).parameters())
    print(f"{FOLDER}: {count} parameters")


if __name__ == "__main__":
    main()
