#!/usr/bin/env python3
"""Write tests/data/fixtures: small byte-level BPE tokenizers and what Hugging Face `tokenizers` makes of texts.

usage: make_data_fixtures.py      (needs tokenizers; the result is committed, tests do not run this)

NAME/tokenizer.json, tokenizer_config.json   a tokenizer of the family's shape, trained on the texts below
NAME/cases.json                              [{"text", "ids", "with_template"}]
pretokenizers.json                           [{"pre_tokenizer", "cases": [{"text", "words"}]}]
"""
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as pre
from tokenizers import processors

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/fixtures"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
POSSESSIVE = r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"

TEXTS = [
    "",
    " ",
    "Hello world",
    "The quick brown fox jumps over the lazy dog. The dog sleeps; the fox doesn't.",
    "I'll say we've done it, it's what they'd want, you're right, I'm sure, don't.",
    "I'LL SAY WE'VE DONE IT, IT'S WHAT THEY'D WANT \u2014 'S 'T 'RE 'VE 'M 'LL 'D '\u017f",
    "  leading, trailing  ",
    "tabs\tand\t\ttabs\n\nnewlines\r\n\r\n   mixed \n  white\u00a0space\u3000here\u2028line\u0085next\u180eend\u200b",
    "1 12 123 1234 12345 3.14159 1,000,000 x1y2 \u00bd \u00b2\u00b3 \u2167 \u0661\u0662\u0663",
    "def f(x):\n    if x > 0:\n        return x ** 2  # square\n\treturn -x\n",
    "caf\u00e9 cafe\u0301 na\u00efve \u212b \ufb01 A\u030a\u0323 \u1e69 s\u0323\u0307",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8 \u4e2d\u6587\u5b57\u7b26 \ud55c\uad6d\uc5b4 \u0e44\u0e17\u0e22 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f \U0001d518\U0001d52b",
    "!!! ??? ... --- <<48/2=24>> #### 72 _under_score_ $5.00 50% a@b.c",
    "<|endoftext|>start<|endoftext|> middle <|endoftext|>",
    "a <left> b <right> c  <left><right>  <both>  d<both>e",
    "the word, keyword, word-word word_word sword word.",
    "\u0000\u0001\u007f control \u001b[0m",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the the the there then them these those other another together weather",
]

ADDED = [
    AddedToken("<left>", lstrip=True, special=True),
    AddedToken("<right>", rstrip=True, special=True),
    AddedToken("<both>", lstrip=True, rstrip=True, special=False, normalized=False),
    AddedToken("word", single_word=True, special=False, normalized=False),
    AddedToken("caf\u00e9", special=False, normalized=True),
    AddedToken("    ", special=False, normalized=True),
    AddedToken("   ", special=False, normalized=True),
]


def train(pre_tokenizer, normalizer=None, specials=("<|endoftext|>",), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=list(specials), show_progress=False,
        initial_alphabet=sorted(pre.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def split_then_bytes(pattern):
    return pre.Sequence([
        pre.Split(Regex(pattern), "isolated"),
        pre.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


def write(name, tokenizer, config, merges_as_strings=False):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    content = json.loads(tokenizer.to_str())
    if merges_as_strings:
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    dump(folder / "tokenizer.json", content)
    for file, value in config.items():
        dump(folder / file, value)
    cases = [{
        "text": text,
        "ids": tokenizer.encode(text, add_special_tokens=False).ids,
        "with_template": tokenizer.encode(text).ids,
    } for text in TEXTS]
    dump(folder / "cases.json", cases)


def dump(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def make_tokenizers():
    gpt2 = train(pre.ByteLevel(add_prefix_space=False))
    gpt2.post_processor = processors.ByteLevel(trim_offsets=False)
    gpt2.add_tokens(ADDED)
    write("gpt2", gpt2, {"tokenizer_config.json": {"eos_token": "<|endoftext|>"}}, True)

    llama = train(split_then_bytes(LLAMA3), specials=("<|begin|>", "<|end|>"), ignore_merges=True)
    # A word that no merge makes: only ignore_merges gives it.
    content = json.loads(llama.to_str())
    content["model"]["vocab"]["\u0120jumps"] = len(content["model"]["vocab"])
    llama = Tokenizer.from_str(json.dumps(content))
    llama.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B:1",
                                      special_tokens=[("<|begin|>", 0)]),
    ])
    write("llama3", llama, {"special_tokens_map.json": {"eos_token": {"content": "<|end|>"}}})

    qwen = train(split_then_bytes(QWEN), normalizers.NFC())
    qwen.add_tokens(ADDED)
    write("qwen", qwen, {"generation_config.json": {"eos_token_id": [0, 1]}})

    spaced = train(pre.ByteLevel(add_prefix_space=True), specials=("<s>", "</s>", "<|endoftext|>"))
    spaced.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    write("prefix_space", spaced, {"tokenizer_config.json": {"eos_token": {"content": "</s>"}}})


def pre_tokenizer_shapes():
    def split(pattern, behavior="Isolated", invert=False):
        return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}

    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    gpt2 = dict(byte_level, use_regex=True)

    def sequence(*parts):
        return {"type": "Sequence", "pretokenizers": list(parts)}

    yield gpt2
    yield dict(gpt2, add_prefix_space=True)
    for pattern in (LLAMA3, QWEN, O200K, POSSESSIVE, r"\p{Han}+", r"(?<=\d)[^\d]", r"x*", r"^\S|\S$", r"[\-\]x]"):
        yield sequence(split({"Regex": pattern}), byte_level)
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield sequence(split({"Regex": r"\s|e"}, behavior, invert), byte_level)
    yield sequence(split({"String": "."}, "MergedWithPrevious"), byte_level)
    for individual in (False, True):
        yield sequence({"type": "Digits", "individual_digits": individual}, byte_level)
    # Falcon: the last two work on the byte alphabet.
    yield sequence({"type": "Punctuation", "behavior": "Contiguous"}, gpt2,
                   {"type": "Digits", "individual_digits": False}, split({"Regex": "[0-9][0-9][0-9]"}))


def make_pretokenizers():
    shapes = []
    for shape in pre_tokenizer_shapes():
        tokenizer = Tokenizer.from_str(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": shape, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "vocab": {}, "merges": []}}))
        texts = TEXTS[3:9] + TEXTS[10:14]
        cases = [{"text": text, "words": [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]}
                 for text in texts]
        shapes.append({"pre_tokenizer": shape, "cases": cases})
    half = len(shapes) // 2
    dump(OUT / "pretokenizers_1.json", shapes[:half])
    dump(OUT / "pretokenizers_2.json", shapes[half:])


if __name__ == "__main__":
    make_tokenizers()
    make_pretokenizers()
