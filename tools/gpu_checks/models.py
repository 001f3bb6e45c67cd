"""Models to train, with random weights: a config.json, tokens, ds_config.json; and what a run of them measured."""
import dataclasses
import json
import math
import random
import statistics
from array import array


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    mlp: int
    vocab: int
    seq: int
    keys: dict = dataclasses.field(default_factory=dict, hash=False)  # of its config.json, beside and over those of a Llama

    @property
    def head_dim(self):
        return self.hidden // self.heads

    @property
    def layer_parameters(self):
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.mlp + 2 * self.hidden

    @property
    def parameters(self):
        return self.layers * self.layer_parameters + 2 * self.vocab * self.hidden + self.hidden

    def config(self):
        return {"model_type": "llama", "hidden_size": self.hidden,
                "intermediate_size": self.mlp, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads, "vocab_size": self.vocab, "max_position_embeddings": self.seq,
                "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "initializer_range": 0.02,
                "tie_word_embeddings": False, "torch_dtype": "float32", **self.keys}


SMALL = Shape("31.6M", 512, 8, 8, 4, 1376, 8192, 256)
LARGE = Shape("1.1B", 2048, 22, 32, 4, 5632, 32000, 2048)
TINY = Shape("tiny", 32, 2, 4, 2, 64, 448, 16)


def like_8b(layers):
    return Shape(f"{layers} layers of an 8B", 4096, layers, 32, 8, 14336, 32768, 2048)


def tokens(path, shape, samples):
    """Tokens that a model can learn: successors are drawn from few."""
    drawn = random.Random(0)
    values = array("H", [drawn.randrange(shape.vocab)])
    for _ in range(samples * shape.seq):
        values.append((values[-1] * 31 + drawn.randrange(7)) % shape.vocab)
    path.write_bytes(values.tobytes())


def prepare(setup, shape, samples=64):
    """Folder with config.json and tokens.bin; made once. There are no weights in it: training starts from random ones."""
    folder = setup.scratch / f"model-{shape.name.replace(' ', '-')}"
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        tokens(folder / "tokens.bin", shape, samples)
        (folder / "config.json").write_text(json.dumps(shape.config()))
    return folder


# Sections of adapters on every product, and of a base in NF4.
LORA = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def ds_config(path, micro_batch, stage=0, dtype="bf16", accumulation=1, lr=1e-4, bf16_states=False, sections=None, **zero):
    config = {"train_micro_batch_size_per_gpu": micro_batch, "gradient_accumulation_steps": accumulation,
              "gradient_clipping": 1.0, "wall_clock_breakdown": True,
              "optimizer": {"type": "AdamW", "params": {"lr": lr, "betas": [0.9, 0.95], "weight_decay": 0.1}},
              "zero_optimization": {"stage": stage, **zero}, **(sections or {})}
    if dtype != "fp32":
        config[dtype] = {"enabled": True}
    if bf16_states:
        config["bf16"].update(bf16_master_weights_and_grads=True, bf16_optimizer_states=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))
    return path


def flops_per_token(shape):
    """As model/spec.h: forward and backward, causal attention counted once."""
    products = shape.layers * (shape.layer_parameters - 2 * shape.hidden) + shape.vocab * shape.hidden
    attention = 2 * shape.layers * shape.heads * shape.head_dim * (shape.seq + 1) / 2
    return 6 * (products + attention)


def rows(path):
    return [row for row in map(json.loads, path.read_text().splitlines()) if "loss" in row]


def timed(ends, tokens_a_step, skip):
    """From the ends of all steps. A step lasts from one to the next; `skip` of them are not counted, of a run of more."""
    steps = [after - before for before, after in zip(ends, ends[1:])]
    step = statistics.median(steps[skip:] or steps or ends)
    return {"tokens_per_s": tokens_a_step / step, "step_s": step, "first_step_s": ends[0]}


def measured(path, shape, tokens_a_step, skip=2):
    """What --metrics of a run tells."""
    found = rows(path)
    times = timed([row["since_start_s"] for row in found], tokens_a_step, skip)
    return {**times, "tflops": flops_per_token(shape) * times["tokens_per_s"] / 1e12,
            "peak_mib": max(row["peak_rss_mib"] for row in found),
            "peak_gpu_mib": max(row["peak_gpu_mib"] or 0 for row in found),
            "peak_share": statistics.median(row["peak_share"] or 0 for row in found),
            "losses": [math.nan if row["loss"] is None else row["loss"] for row in found], "rows": found}
