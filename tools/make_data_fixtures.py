#!/usr/bin/env python3
"""Write tests/data/fixtures: small BPE tokenizers and what Hugging Face `tokenizers` makes of texts.

usage: make_data_fixtures.py      (needs tokenizers; the result is committed, tests do not run this)

Made with tokenizers 0.23.3.

NAME/tokenizer.json, tokenizer_config.json   a tokenizer of the family's shape, trained on the texts below
NAME/cases.json                              [{"text", "ids", "offsets", "with_template", "decoded"}], offsets in bytes
NAME/hashes.json                             {"ids", "decoded"}: of each 100 of 10,000 lines, which line(n) makes
pretokenizers.json                           [{"pre_tokenizer", "cases": [{"text", "words"}]}]
normalizers.json                             [{"normalizer", "cases": [{"text", "normal"}]}]
decoders.json                                [{"decoder", "cases": [{"tokens", "text"}]}]

lines.json, of which the lines are made, is written by hand.
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
CL100K = r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"

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

LINES = 10_000
BLOCK = 100
PARTS = json.loads((OUT / "lines.json").read_text())

ADDED = [
    AddedToken("<left>", lstrip=True, special=True),
    AddedToken("<right>", rstrip=True, special=True),
    AddedToken("<both>", lstrip=True, rstrip=True, special=False, normalized=False),
    AddedToken("word", single_word=True, special=False, normalized=False),
    AddedToken("caf\u00e9", special=False, normalized=True),
    AddedToken("    ", special=False, normalized=True),
    AddedToken("   ", special=False, normalized=True),
]


class Random:
    """The same numbers as tests/data/lines.h draws."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % limit

    def pick(self, values):
        return values[self.below(len(values))]


def piece(random):
    kind = random.pick(PARTS["kinds"])
    if "texts" in kind:
        text = random.pick(kind["texts"])
        return text * (1 + random.below(kind["repeat"])) if "repeat" in kind else text
    text = ""
    for _ in range(1 + random.below(kind["most"])):
        first, last = random.pick(kind["ranges"])
        text += chr(first + random.below(last - first + 1))
    return text


def line(number):
    random = Random(number)
    text = ""
    for _ in range(1 + random.below(12)):
        text += piece(random)
        text += random.pick(PARTS["between"])
    return text


def mixed(numbers):
    """FNV-1a over whole numbers instead of bytes."""
    value = 0xCBF29CE484222325
    for number in numbers:
        value = (value ^ number) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def hash_lines(tokenizer):
    ids, decoded = [], []
    for begin in range(0, LINES, BLOCK):
        encoded = [tokenizer.encode(line(n), add_special_tokens=False).ids for n in range(begin, begin + BLOCK)]
        texts = [tokenizer.decode(one, skip_special_tokens=False).encode() for one in encoded]
        ids.append(mixed(number for one in encoded for number in [len(one), *one]))
        decoded.append(mixed(number for one in texts for number in [len(one), *one]))
    return {"ids": ids, "decoded": decoded}


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
        "offsets": byte_offsets(content, text),
        "with_template": tokenizer.encode(text).ids,
        "decoded": tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False),
    } for text in TEXTS]
    dump(folder / "cases.json", cases)
    dump(folder / "hashes.json", hash_lines(tokenizer))


def byte_offsets(content, text):
    """Of a tokenizer without its post-processor, which may take white space off them."""
    bare = Tokenizer.from_str(json.dumps({**content, "post_processor": None}))
    begins = [len(text[:i].encode()) for i in range(len(text) + 1)]
    return [[begins[begin], begins[end]] for begin, end in bare.encode(text, add_special_tokens=False).offsets]


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


    smol = train(pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]))
    write("smollm", smol, {})
    write("cl100k", train(split_then_bytes(CL100K)), {})
    write("tekken", train(split_then_bytes(O200K), specials=("<unk>", "<s>", "</s>"), ignore_merges=True), {})


MARK = "\u2581"


def special(content, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True, **flags}


def characters(specials, normalizer, pre_tokenizer, decoder, single="<s> $A", by_bytes=True, **model):
    """A tokenizer on characters: special tokens, bytes, and what is learnt of words that begin with the mark."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre.Metaspace()
    learner.train_from_iterator(
        TEXTS + [line(n) for n in range(1000)],
        trainers.BpeTrainer(vocab_size=700, limit_alphabet=300, max_token_length=12, show_progress=False))
    learnt = json.loads(learner.to_str())["model"]
    tokens = [one["content"] for one in specials] + [f"<0x{byte:02X}>" for byte in range(256) if by_bytes]
    merges = learnt["merges"] + [[MARK, MARK], [MARK * 2, MARK * 2], [",", MARK], [MARK + "the", MARK]]
    tokens += sorted(learnt["vocab"], key=learnt["vocab"].get) + [a + b for a, b in merges]
    vocab = {token: id for id, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "post_processor": None,
        "added_tokens": [{"id": vocab[one["content"]], **one} for one in specials],
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": decoder,
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": by_bytes, "ignore_merges": False,
                  "vocab": vocab, "merges": merges, **model}}))
    used = [name for name in ("<s>", "</s>") if name in single]
    if used:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[(name, vocab[name]) for name in used])
    return tokenizer


def make_character_tokenizers():
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
    marked = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, spaces]}
    back = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]
    stripped = {"type": "Sequence", "decoders": [*back, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}

    named = [special(name, normalized=True) for name in ("<unk>", "<s>", "</s>")]
    write("llama2", characters(named, marked, None, stripped), {"tokenizer_config.json": {"eos_token": "</s>"}})

    raw = [special(name) for name in ("<unk>", "<s>", "</s>")]
    first = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}
    write("mistral", characters(raw, None, first, stripped, "<s> $A </s>"), {})

    chat = [*raw[:2], special("</s>", rstrip=True, special=False), special("<|endoftext|>"),
            special("<|user|>", rstrip=True), special("word", single_word=True, lstrip=True, special=False)]
    write("phi3", characters(chat, marked, None, stripped, "$A"), {})

    gemma = [*raw, special("<start_of_turn>"), *(special(text, special=False) for text in ("\n\n", "\t\t", MARK * 3))]
    by_space = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    write("gemma", characters(gemma, spaces, by_space, {"type": "Sequence", "decoders": back}), {})

    plain = {"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
        {"type": "Strip", "strip_left": False, "strip_right": True}]}
    always = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
    words = [*raw, special("word", single_word=True, normalized=True, special=False),
             special("CAF\u00c9", normalized=True, special=False)]
    write("unknowns", characters(words, plain, always, always, "$A", by_bytes=False, fuse_unk=False), {})


def pre_tokenizer_shapes():
    def split(pattern, behavior="Isolated", invert=False):
        return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}

    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    gpt2 = dict(byte_level, use_regex=True)

    def sequence(*parts):
        return {"type": "Sequence", "pretokenizers": list(parts)}

    yield gpt2
    yield dict(gpt2, add_prefix_space=True)
    for pattern in (LLAMA3, QWEN, O200K, CL100K, r"\p{Han}+", r"(?<=\d)[^\d]", r"x*", r"^\S|\S$", r"[\-\]x]"):
        yield sequence(split({"Regex": pattern}), byte_level)
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield sequence(split({"Regex": r"\s|e"}, behavior, invert), byte_level)
    yield sequence(split({"String": "."}, "MergedWithPrevious"), byte_level)
    for individual in (False, True):
        yield sequence({"type": "Digits", "individual_digits": individual}, byte_level)
    for scheme in ("always", "first", "never"):
        for cut in (False, True):
            yield {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cut}
    yield sequence(split({"String": " "}, "MergedWithPrevious"))
    yield sequence({"type": "Digits", "individual_digits": True}, gpt2)
    # Falcon: the last two work on the byte alphabet.
    yield sequence({"type": "Punctuation", "behavior": "Contiguous"}, gpt2,
                   {"type": "Digits", "individual_digits": False}, split({"Regex": "[0-9][0-9][0-9]"}))


def with_parts(**parts):
    return Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": None, "post_processor": None, "decoder": None,
        "model": {"type": "BPE", "vocab": {}, "merges": []}, **parts}))


def make_pretokenizers():
    shapes = []
    for shape in pre_tokenizer_shapes():
        tokenizer = with_parts(pre_tokenizer=shape)
        texts = TEXTS[3:9] + TEXTS[10:14]
        cases = [{"text": text, "words": [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]}
                 for text in texts]
        shapes.append({"pre_tokenizer": shape, "cases": cases})
    half = len(shapes) // 2
    dump(OUT / "pretokenizers_1.json", shapes[:half])
    dump(OUT / "pretokenizers_2.json", shapes[half:])


def make_normalizers():
    def replace(content, **pattern):
        return {"type": "Replace", "pattern": pattern, "content": content}

    shapes = [{"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")]
    shapes += [{"type": "Strip", "strip_left": left, "strip_right": right}
               for left, right in ((True, True), (True, False), (False, True))]
    shapes += [{"type": "Prepend", "prepend": MARK}, replace(MARK, String=" "), replace("", String="e"),
               replace("<>", Regex=r"\s+|(?<=o)n"), replace("-", Regex="x*"),
               {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Strip", "strip_left": True, "strip_right": True},
                                                    {"type": "Lowercase"}, replace("  ", String=" ")]}]
    texts = [TEXTS[7], *TEXTS[10:13], " \u00a0\t ", *(line(n) for n in (2, 4))]
    dump(OUT / "normalizers.json", [{"normalizer": shape, "cases": [
        {"text": text, "normal": with_parts(normalizer=shape).normalizer.normalize_str(text)} for text in texts]} for shape in shapes])


def make_decoders():
    tokens = [
        [MARK + "Hello", MARK + MARK, "world", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "!", "<0x0A>", "<0xg1>", "<s>"],
        ["<0xE2>", "<0x82>", "a", "<0xff>", "<0x4>", "<0x041>", "<0xC3>", "<0xA9>"],
        [" ", "  a  ", "\u0120b\u0120", "\u00c3\u00a9", "\u00e2\u0122", "\u00ac", "<s>\u65e5", "\u00f0\u0141\u013a", "x"],
        [MARK, "a" + MARK + "b", "", "\u00ed\u0142\u0122\u00c0\u00af\u00f4\u0132\u0122\u0122"],
    ]
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    replace = {"type": "Replace", "pattern": {"String": MARK}, "content": " "}
    shapes = [None, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
              {"type": "ByteFallback"}, {"type": "Fuse"}, replace, strip, dict(strip, start=2, stop=0),
              *({"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": True}
                for scheme in ("always", "first", "never")),
              {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]}]
    cases = []
    for shape in shapes:
        texts = [with_parts(decoder=shape).decoder.decode(one) if shape else " ".join(one) for one in tokens]
        cases.append({"decoder": shape, "cases": [{"tokens": one, "text": text} for one, text in zip(tokens, texts)]})
    dump(OUT / "decoders.json", cases)


if __name__ == "__main__":
    make_tokenizers()
    make_character_tokenizers()
    make_pretokenizers()
    make_normalizers()
    make_decoders()
