#!/usr/bin/env python3
"""Writes the fixtures of chat templates: what transformers renders, or that it raises an error.

usage: make_chat_template_fixtures.py    with transformers and jinja2 installed (pip install transformers jinja2)

Reads templates.jsonl (small templates, by the source that they test), templates/ and conversations.jsonl in
tests/data/fixtures/chat_template, and writes cases.json and renderings.json there.
"""
import datetime
import json
import pathlib

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/data/fixtures/chat_template"
TOKENS = {
    "gemma-3-chat": {"bos_token": "<bos>", "eos_token": "<eos>"},
    "nvidia-mistral": {"bos_token": "<s>", "eos_token": "</s>"},
    "phi-3": {"bos_token": "<s>", "eos_token": "<|endoftext|>"},
    "phi-4-mini": {"eos_token": "<|endoftext|>"},
    "qwen2.5": {"eos_token": "<|im_end|>"},
    "qwen3": {"eos_token": "<|im_end|>"},
}
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


def write(name, entries, **head):
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    head = json.dumps({"transformers": transformers.__version__, "jinja2": jinja2.__version__} | head)
    (FOLDER / name).write_text(f'{head[:-1]}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")


def main():
    write("cases.json", small_cases())
    shown = [{key: entry[key] for key in ("template", "id", "text")} for entry in renderings()]
    write("renderings.json", shown, tokens=TOKENS)


if __name__ == "__main__":
    main()
