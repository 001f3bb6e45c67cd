#!/usr/bin/env python3
"""Zeroth beside DDP, FSDP2 and DeepSpeed on the same checkpoint, tokens and ranks, in turns: the CPU tables of README.md.

usage: side_by_side.py PROGRAM TEXT [--rows name,...] [--cpu LEVEL] [--repeat 1] [--steps 12] [--limit 600] [--work DIR]

PROGRAM is build/bin/zeroth; TEXT any text of a megabyte, from which a tokenizer and token ids are made once. --cpu holds both
sides down to the instructions of a CPU level (tools/at_cpu_level). A run that takes more than --limit seconds is ended and named.
Needs torch 2.11.0, transformers 5.17.0 and deepspeed 0.19.8 in the Python that runs it, and a machine that does nothing else.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
RANKS, ROWS, SEQ = 2, 4, 256
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
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--rows", default=",".join(TABLE))
    parser.add_argument("--cpu", help="plain, avx2, avx512, ...")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--limit", type=float, default=600, help="seconds for one run of one side")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/side_by_side"))
    args = parser.parse_args()
    unknown = [row for row in args.rows.split(",") if row not in TABLE]
    if unknown:
        parser.error(f"no row {unknown[0]}; there are {', '.join(TABLE)}")
    return args


def make_model(folder, text):
    """A random Llama of 31.6M parameters with a tokenizer trained on the text, and the text's ids as uint16."""
    import numpy as np
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoModelForCausalLM, LlamaConfig

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=8192, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train([str(text)], trainer)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=1376,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(text.read_text(encoding="utf-8")).ids
    np.array(ids, dtype=np.uint16).tofile(folder / "tokens.bin")  # last: its presence says that all is there


def write_config(folder, stage, dtype, offload):
    betas = {"lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
    config = {
        "train_micro_batch_size_per_gpu": ROWS,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": betas},
        "zero_optimization": {"stage": stage},
    }
    if dtype != "fp32":
        config[dtype] = {"enabled": True}
    if offload:
        config["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    if offload and stage == 3:
        config["zero_optimization"]["offload_param"] = {"device": "cpu"}
    path = folder / f"z{stage}_{dtype}{'_off' if offload else ''}.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


class Failed(Exception):
    pass


class Bench:
    def __init__(self, args):
        self.args = args
        self.model = args.work / "llama"
        self.model.mkdir(parents=True, exist_ok=True)
        self.tokens = self.model / "tokens.bin"
        if not self.tokens.exists():
            make_model(self.model, args.text)
        self.held = [str(HERE.parent / "tools/at_cpu_level"), args.cpu] if args.cpu else []
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1"}

    def run(self, command):
        """Its standard output. What it started ends with it."""
        child = subprocess.Popen(
            self.held + command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = child.communicate(timeout=self.args.limit)
        except subprocess.TimeoutExpired as expired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise Failed(f"no result in {self.args.limit:g} s") from expired
        if child.returncode != 0:
            raise Failed(" ".join((err or out)[-200:].replace("|", "/").split()))
        return out

    def peer(self, engine, dtype, config, steps):
        folder = pathlib.Path(sys.executable).parent
        launcher = [str(folder / "torchrun"), "--nproc_per_node", str(RANKS), "--master_port", "29634"]
        if engine == "deepspeed":
            launcher = [str(folder / "deepspeed"), "--num_accelerators", str(RANKS), "--master_port", "29633"]
        command = launcher + [str(HERE / "peer_step.py"), "--engine", engine, "--dtype", dtype, "--config", config]
        command += ["--model", str(self.model), "--tokens", str(self.tokens), "--seq", str(SEQ)]
        out = self.run(command + ["--rows", str(ROWS), "--steps", str(steps), "--launched-at", str(time.time())])
        results = [line[7:] for line in out.splitlines() if line.startswith("RESULT ")]
        if not results:
            raise Failed("no result")
        return json.loads(results[0])

    def ours(self, config):
        metrics = self.args.work / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        command = [str(self.args.program.resolve()), "--num_gpus", str(RANKS), "finetune", "--model", str(self.model)]
        command += ["--data", str(self.tokens), "--seq-len", str(SEQ), "--no-shuffle", "--deepspeed", config]
        self.run(command + ["--steps", str(self.args.steps), "--metrics", str(metrics)])
        rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        rows = [row for row in rows if row.get("loss") is not None]
        ends = [row["since_start_s"] for row in rows]
        return {
            "step_s": statistics.median(after - before for before, after in zip(ends, ends[1:])),
            "first_step_s": ends[0],
            "peak_mib": max(row["peak_rss_mib"] for row in rows),
            "losses": [row["loss"] for row in rows],
        }

    def row(self, name):
        engine, stage, dtype, offload = TABLE[name]
        config = write_config(self.args.work, stage, dtype, offload)
        sides = {"peer": [], "ours": []}
        failures = {}
        for _ in range(self.args.repeat):
            for side, run in (
                ("peer", lambda: self.peer(engine, dtype, config, self.args.steps)),
                ("ours", lambda: self.ours(config)),
            ):
                if side in failures:
                    continue
                try:
                    sides[side].append(run())
                except Failed as failure:
                    failures[side] = str(failure)
        return format_row(name, sides, failures)


def format_row(name, sides, failures):
    def median(side, key):
        return statistics.median(run[key] for run in sides[side])

    def cell(side, key, form, scale=1.0):
        return "-" if not sides[side] else form.format(scale * median(side, key))

    def rate(side):
        return failures.get(side) or f"{RANKS * ROWS * SEQ / median(side, 'step_s'):.0f}"

    both = not failures
    ratio = f"{median('peer', 'step_s') / median('ours', 'step_s'):.2f}" if both else "-"
    pairs = [
        abs(a - b)
        for peer, ours in zip(sides["peer"], sides["ours"])
        for a, b in zip(peer["losses"], ours["losses"])
    ]
    first = f"{cell('peer', 'first_step_s', '{:.1f}')} / {cell('ours', 'first_step_s', '{:.2f}')}"
    peak = f"{cell('peer', 'peak_mib', '{:.0f}')} / {cell('ours', 'peak_mib', '{:.0f}')}"
    worst = f"{max(pairs):.1e}" if pairs else "-"
    return f"| {name} | {rate('peer')} | {rate('ours')} | {ratio} | {first} | {peak} | {worst} |"


def main():
    args = parse()
    bench = Bench(args)
    names = args.rows.split(",")
    if any(TABLE[name][0] == "deepspeed" for name in names):  # compiles its optimizer, which is not counted
        for stage in (1, 3):
            config = write_config(args.work, stage, "fp32", stage == 3)
            try:
                bench.peer("deepspeed", "fp32", config, steps=2)
            except Failed as failure:
                print(f"DeepSpeed at stage {stage}: {failure}", file=sys.stderr)
    print(f"{RANKS} ranks of one thread, {args.cpu or 'all instructions'}, {ROWS} x {SEQ} tokens, {args.steps} steps\n")
    print("| row | peer tok/s | ours tok/s | ratio | first step s, peer / ours | peak MiB of a rank, peer / ours | max loss diff |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        print(bench.row(name), flush=True)


if __name__ == "__main__":
    main()
