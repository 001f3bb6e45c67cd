#!/usr/bin/env python3
"""Writes the fixtures of chat templates: what transformers renders, or that it raises an error, and what is trained of it.

usage: make_chat_template_fixtures.py    with transformers, jinja2 and tokenizers installed (pip install transformers jinja2)

Reads templates.jsonl (small templates, by the source that they test), templates/, marked/ (the same with generation blocks) and
conversations.jsonl in tests/data/fixtures/chat_template, and writes cases.json, renderings.json and masks.json there.
"""
import datetime
import json
import pathlib

import jinja2
import tokenizers
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/data/fixtures/chat_template"
TOKENS = {
    "gemma-3-chat": {"bos_token": "<bos>", "eos_token": "<eos>"},
    "nvidia-mistral": {"bos_token": "<s>", "eos_token": "</s>"},
    "phi-3": {"bos_token": "<s>", "eos_token": "<|endoftext|>"},
    "phi-4-mini": {"eos_token": "<|endoftext|>"},
    "qwen2.5": {"eos_token": "<|im_end|>"},
    "qwen3": {"eos_token": "<|im_end|>"},
}
# Special tokens that masks.json adds to the fixtures' GPT-2 tokenizer.
MARKS = ["<s>", "</s>", "<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|user|>", "<|system|>", "<|assistant|>", "<|end|>",
         "<|tool|>", "<|/tool|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"]
COMMON = {"d": {"a": {"b": 1}, "items": 2}, "l": ["a", "b"]}


def strftime_now(form):
    return datetime.datetime(2026, 1, 15).strftime(form)


def render(template, context):
    """The text, or None for an error."""
    try:
        return _compile_jinja_template(template).render(**json.loads(json.dumps(context)), strftime_now=strftime_now)
    except Exception:
        return None


def read_lines(name):
    return [json.loads(line) for line in (FOLDER / name).read_text("utf-8").strip().split("\n")]


def small_cases():
    """The lines of templates.jsonl: {group, template, context?, supported?}. With `supported: false` transformers renders a
    template and Zeroth refuses it."""
    for line in read_lines("templates.jsonl"):
        context = line.get("context", {})
        context = COMMON if context == "common" else context
        text = render(line["template"], context) if line.get("supported", True) else None
        yield {"group": line["group"], "template": line["template"], "context": context, "text": text}


def renderings():
    conversations = read_lines("conversations.jsonl")
    for path in sorted((FOLDER / "templates").glob("*.jinja")):
        template = path.read_text("utf-8")
        for record in conversations:
            context = {"messages": record["messages"], "tools": record.get("tools"), "documents": None,
                       "add_generation_prompt": record["id"].endswith("s")}
            context |= TOKENS[path.stem] | record.get("chat_template_kwargs", {})
            yield {"template": path.stem, "id": record["id"], "context": context, "text": render(template, context)}


def masks():
    """The tokens with a character that a marked template generates, as ranges [first, end)."""
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER.parent / "gpt2/tokenizer.json"))
    tokenizer.add_special_tokens([tokenizers.AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    for path in sorted((FOLDER / "marked").glob("*.jinja")):
        for record in read_lines("conversations.jsonl"):
            variables = TOKENS[path.stem] | record.get("chat_template_kwargs", {})
            try:
                (text,), (spans,) = render_jinja_template(
                    conversations=[record["messages"]], tools=record.get("tools"), chat_template=path.read_text("utf-8"),
                    return_assistant_tokens_mask=True, **variables)
            except Exception:
                continue
            encoding = tokenizer.encode(text, add_special_tokens=False)
            runs = []
            for index, (begin, end) in enumerate(encoding.offsets):
                if not any(begin < last and end > first for first, last in spans):
                    continue
                if runs and runs[-1][1] == index:
                    runs[-1][1] += 1
                else:
                    runs.append([index, index + 1])
            yield {"template": path.stem, "id": record["id"], "tokens": len(encoding.ids), "trained": runs}


def write(name, entries, **head):
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    head = json.dumps({"transformers": transformers.__version__, "jinja2": jinja2.__version__} | head)
    (FOLDER / name).write_text(f'{head[:-1]}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")


def main():
    write("cases.json", small_cases())
    shown = [{key: entry[key] for key in ("template", "id", "text")} for entry in renderings()]
    write("renderings.json", shown, tokens=TOKENS)
    write("masks.json", masks(), tokens=TOKENS, marks=MARKS)


if __name__ == "__main__":
    main()
