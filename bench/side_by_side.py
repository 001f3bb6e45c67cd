#!/usr/bin/env python3
"""Zeroth beside DDP, FSDP2 and DeepSpeed on the same checkpoint, tokens and ranks, in turns: the CPU tables of README.md.

usage: side_by_side.py PROGRAM TEXT [--rows name,...] [--shape 31.6M,...] [--ranks 2] [--alone] [--beside SHAPE]
           [--accumulation 1] [--cpu LEVEL] [--repeat 1] [--steps 12] [--limit 600] [--work DIR]

PROGRAM is build/bin/zeroth; TEXT any text of a megabyte, from which a tokenizer and token ids are made once. --beside puts our
own run of another shape in the place of the peer's. --cpu holds both sides down to the instructions of a CPU level
(tools/at_cpu_level). A run that takes more than --limit seconds is ended and named.
Needs torch 2.11.0, transformers 5.17.0, deepspeed 0.19.8 and peft 0.21.2 in the Python that runs it, and a machine that does
nothing else.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import sys

TOOLS = pathlib.Path(__file__).resolve().parents[1] / "tools"
sys.path.insert(0, str(TOOLS))
from gpu_checks import commands, models, results  # noqa: E402
from gpu_checks.runs import Failed, peer  # noqa: E402

ROWS, SEQ = 4, 256  # of a rank's step
# The small one in other families, at its sizes. In mixtures of experts a token's experts have the sizes of its MLP together.
OTHERS = {
    "phi3": {"pad_token_id": 0},
    "granite": {"attention_multiplier": 0.125, "embedding_multiplier": 2.0, "residual_multiplier": 0.5, "logits_scaling": 2.0},
    "smollm3": {"pad_token_id": 0},
    "cohere": {},
    "glm4": {"head_dim": 64, "pad_token_id": 0},
    "olmo2": {},
    "gemma3_text": {"hidden_act": "gelu_pytorch_tanh", "head_dim": 64, "query_pre_attn_scalar": 64},
    "8 experts": {"model_type": "qwen3_moe", "head_dim": 64, "num_experts": 8, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 688, "norm_topk_prob": True},
    "32 experts": {"model_type": "qwen3_moe", "head_dim": 64, "num_experts": 32, "num_experts_per_tok": 8,
                   "moe_intermediate_size": 172, "norm_topk_prob": True},
}
SHAPES = {shape.name: dataclasses.replace(shape, seq=SEQ) for shape in (models.SMALL, models.LARGE)}
SHAPES |= {name: dataclasses.replace(models.SMALL, name=name, seq=SEQ, keys={"model_type": name, **keys})
           for name, keys in OTHERS.items()}
# Row -> the peer, our stage beside it, precision, offload to the host's memory.
TABLE = {
    "ddp_fp32": ("ddp", 0, "fp32", False),
    "ds_z1_fp32": ("deepspeed", 1, "fp32", False),
    "ds_z2_fp32": ("deepspeed", 2, "fp32", False),
    "ds_z3_fp32": ("deepspeed", 3, "fp32", False),
    "fsdp2_fp32": ("fsdp2", 3, "fp32", False),
    "ds_z1_bf16": ("deepspeed", 1, "bf16", False),
    "ds_z2_bf16": ("deepspeed", 2, "bf16", False),
    "ds_z3_bf16": ("deepspeed", 3, "bf16", False),
    "fsdp2_bf16": ("fsdp2", 3, "bf16", False),
    "ds_z2_off_bf16": ("deepspeed", 2, "bf16", True),
    "ds_z3_off_bf16": ("deepspeed", 3, "bf16", True),
    "ddp_fp16": ("ddp", 0, "fp16", False),
    "ds_z2_fp16": ("deepspeed", 2, "fp16", False),
    "fsdp2_fp16": ("fsdp2", 3, "fp16", False),
    "ddp_lora_fp32": ("ddp", 0, "fp32", False),
    "ddp_lora_bf16": ("ddp", 0, "bf16", False),
    "ds_z2_lora_fp32": ("deepspeed", 2, "fp32", False),
    "ddp_qlora_fp32": ("ddp", 0, "fp32", False),
    "ddp_qlora_bf16": ("ddp", 0, "bf16", False),
}
# Rows with "lora" in their names: adapters of peft and ours, which start at other random values, so their losses differ; with
# "qlora" over a base in NF4, the peer's by bitsandbytes.
HEADER = ["shape", "row", "peer tok/s", "ours tok/s", "ratio", "first step s, peer / ours", "peak MiB of a rank, peer / ours",
          "max loss diff"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--rows", default=",".join(TABLE))
    parser.add_argument("--shape", default=models.SMALL.name, help=", ".join(SHAPES))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="our side only")
    parser.add_argument("--beside", choices=SHAPES, help="our run of this shape in the place of the peer's")
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches of a step; only with --alone or --beside")
    parser.add_argument("--cpu", help="plain, avx2, avx512, ...")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run of one side")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/side_by_side"))
    args = parser.parse_args()
    for what, names, known in (("row", args.rows, TABLE), ("shape", args.shape, SHAPES)):
        unknown = [name for name in names.split(",") if name not in known]
        if unknown:
            parser.error(f"no {what} {unknown[0]}; there are {', '.join(known)}")
    if args.accumulation > 1 and not (args.alone or args.beside):
        parser.error("--accumulation needs --alone or --beside: the peers' side of it is not written")
    return args


def make_model(folder, shape, text):
    """Random weights, a tokenizer trained on the text, and the text's ids as uint16."""
    import numpy
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import AutoConfig, AutoModelForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape.config()))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([str(text)], vocab_size=shape.vocab, special_tokens=["<|endoftext|>"], show_progress=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(text.read_text(encoding="utf-8")).ids
    numpy.array(ids, dtype=numpy.uint16).tofile(folder / "tokens.bin")  # last: its presence says that all is there


class Bench:
    def __init__(self, args):
        self.args, self.work = args, args.work.resolve()
        self.tokens = args.ranks * ROWS * SEQ * args.accumulation  # of a step
        self.held = [TOOLS / "at_cpu_level", args.cpu] if args.cpu else []
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1"}

    def model(self, shape):
        folder = self.work / shape.name.replace(" ", "-")
        if not (folder / "tokens.bin").exists():
            make_model(folder, shape, self.args.text)
        return folder

    def config(self, stage, dtype, offload, sections=None):
        places = ["offload_optimizer"] * offload + ["offload_param"] * (offload and stage == 3)
        path = self.work / f"z{stage}_{dtype}{'_off' * offload}{''.join('_' + name for name in sections or {})}.json"
        return models.ds_config(path, ROWS, stage, dtype, self.args.accumulation, lr=1e-3, sections=sections,
                                **{place: {"device": "cpu"} for place in places})

    def peer(self, trainer, shape, config, steps):
        folder = pathlib.Path(sys.executable).parent
        launcher = [folder / "torchrun", "--nproc_per_node", self.args.ranks, "--master_port", 29634]
        if trainer == "deepspeed":
            launcher = [folder / "deepspeed", "--num_accelerators", self.args.ranks, "--master_port", 29633]
        return peer([*self.held, *launcher], trainer, self.model(shape), config, device="cpu", seq=SEQ, steps=steps,
                    tokens_a_step=self.tokens, log=self.work / "peer.log", limit=self.args.limit, skip=0, env=self.environment)

    def ours(self, shape, config):
        model, metrics = self.model(shape), self.work / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        words = [*self.held, self.args.program.resolve(), "--num_gpus", self.args.ranks, "finetune", "--model", model, "--data",
                 model / "tokens.bin", "--seq-len", SEQ, "--no-shuffle", "--deepspeed", config, "--steps",
                 self.args.steps, "--metrics", metrics]
        done = commands.run(words, self.args.limit, self.environment, log=self.work / "ours.log")
        if not done.ok:
            raise Failed(done.end())
        return models.measured(metrics, shape, self.tokens, skip=0)

    def row(self, shape, name):
        trainer, stage, dtype, offload = TABLE[name]
        sections = {"lora": models.LORA} if "lora" in name else {}
        config = self.config(stage, dtype, offload, sections | ({"quantization": models.NF4} if "qlora" in name else {}))
        sides = {"peer": [], "ours": []}
        failures = {"peer": "-"} if self.args.alone else {}
        beside = SHAPES.get(self.args.beside)
        for _ in range(self.args.repeat):
            for side, run in (
                ("peer", lambda: self.ours(beside, config) if beside else self.peer(trainer, shape, config, self.args.steps)),
                ("ours", lambda: self.ours(shape, config)),
            ):
                if side in failures:
                    continue
                try:
                    sides[side].append(run())
                except Failed as failure:
                    failures[side] = str(failure)
        return format_row(shape, name, sides, failures, beside)


def format_row(shape, name, sides, failures, beside):
    def cell(side, key, form):
        return form.format(statistics.median(run[key] for run in sides[side])) if sides[side] else "-"

    def both(key, theirs, ours):
        return f"{cell('peer', key, theirs)} / {cell('ours', key, ours)}"

    def rate(side):
        return failures.get(side) or cell(side, "tokens_per_s", "{:.0f}")

    ratio = "-"
    if not failures:
        ratio = f"{float(cell('ours', 'tokens_per_s', '{}')) / float(cell('peer', 'tokens_per_s', '{}')):.2f}"
    both_sides = [] if beside else zip(sides["peer"], sides["ours"])  # of one model
    pairs = [abs(a - b) for peer, ours in both_sides for a, b in zip(peer["losses"], ours["losses"])]
    return results.cells([shape.name, name, rate("peer"), rate("ours"), ratio, both("first_step_s", "{:.1f}", "{:.2f}"),
                          both("peak_mib", "{:.0f}", "{:.0f}"), f"{max(pairs):.1e}" if pairs else "-"])


def main():
    args = parse()
    bench = Bench(args)
    names = args.rows.split(",")
    shapes = [SHAPES[name] for name in args.shape.split(",")]
    if not args.alone and not args.beside and any(TABLE[name][0] == "deepspeed" for name in names):  # compiles its optimizer, which is not counted
        for stage in (1, 3):
            try:
                bench.peer("deepspeed", shapes[0], bench.config(stage, "fp32", stage == 3), steps=2)
            except Failed as failure:
                print(f"DeepSpeed at stage {stage}: {failure}", file=sys.stderr)
    print(f"{f'peer: {args.beside}, ' if args.beside else ''}{args.ranks} ranks of one thread, {args.cpu or 'all instructions'}, {ROWS} x {SEQ} tokens, "
          f"{args.accumulation} micro-batches, {args.steps} steps\n")
    print(results.cells(HEADER) + "\n|" + "---|" * len(HEADER), flush=True)
    for shape in shapes:
        for name in names:
            print(bench.row(shape, name), flush=True)


if __name__ == "__main__":
    main()
