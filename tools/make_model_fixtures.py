"""Writes tests/model/fixtures: tiny random checkpoints of every family and variant with the results of transformers.

Run with a Python that has torch, transformers, accelerate, bitsandbytes and safetensors:  python tools/make_model_fixtures.py [NAME...]
Without a NAME all are made anew, else only these.
Each folder holds config.json, model.safetensors (or shards) and expected.safetensors:
  ids [2, 24], targets [2, 24] (-100 on some rows), logits [2, 24, vocab], loss [1] (mean over trained targets),
  grad_embedding [vocab, hidden], and the gradients of the first layer as "grad." + transformers' name of the parameter
  (grad_first [hidden], of its input norm, in the older ones).
All but logits_bf16 (llama_bf16 only) is computed in fp32.
rope_frequencies.json: what config.json says of rotary embeddings, and transformers' frequencies and attention factor.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import torch
from nf4_weights import dequantized
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, BitsAndBytesConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/model/fixtures"
SEQ = 24
ROTARY = dict(
    vocab_size=64, hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-6, initializer_range=0.2,
)
LAYER_NORM = {key: value for key, value in ROTARY.items() if key != "rms_norm_eps"}
ALL_HEADS = {key: value for key, value in LAYER_NORM.items() if key != "num_key_value_heads"}
FALCON = {key: value for key, value in ALL_HEADS.items() if key != "intermediate_size"} | dict(ffn_hidden_size=40)
GPT2 = dict(
    vocab_size=64, n_embd=16, n_layer=2, n_head=4, n_positions=32, initializer_range=0.2,
    attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0,
)


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **more}}


YARN = dict(factor=4.0, original_max_position_embeddings=32, beta_fast=4.0)
LONGROPE = dict(
    original_max_position_embeddings=16, short_factor=[1.0] * 4, long_factor=[1.0, 1.5, 3.0, 7.5], rope_theta=20.0)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
MOE = dict(num_experts_per_tok=2, intermediate_size=12)
LATENT_ATTENTION = ROTARY | dict(
    num_key_value_heads=4, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6)
LATENT = {key: value for key, value in LATENT_ATTENTION.items() if key != "num_key_value_heads"} | MOE | dict(
    n_routed_experts=8, n_shared_experts=1, moe_intermediate_size=12, n_group=4, topk_group=2, first_k_dense_replace=1)
DELTA_NET = dict(
    head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
    linear_conv_kernel_dim=3, layer_types=["linear_attention", "full_attention"])
VISION = dict(
    hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, head_dim=8, image_size=16,
    patch_size=8)
PADDING = 37  # the token that begins every 64th sample of tests/equivalence, and occurs in many
VARIANTS = {
    "llama": ("llama", ROTARY),
    "llama_old_keys": ("llama", ROTARY | rope("llama3", **LLAMA3)),
    "llama_llama3": ("llama", ROTARY | rope("llama3", **LLAMA3)),
    "llama_linear": ("llama", ROTARY | rope("linear", factor=4.0)),
    "llama_dynamic": ("llama", ROTARY | rope("dynamic", factor=2.0) | dict(max_position_embeddings=16)),
    "llama_head_dim": ("llama", ROTARY | dict(head_dim=8, attention_bias=True, mlp_bias=True)),
    "llama_bf16": ("llama", ROTARY),
    "llama_fp16_sharded": ("llama", ROTARY),
    "mistral_window": ("mistral", ROTARY | dict(sliding_window=7)),
    "qwen2": ("qwen2", ROTARY),
    "qwen2_window": ("qwen2", ROTARY | dict(use_sliding_window=True, sliding_window=6, max_window_layers=1)),
    "qwen3_tied": ("qwen3", ROTARY | dict(head_dim=8, tie_word_embeddings=True)),
    "gpt2": ("gpt2", GPT2),
    "gpt2_no_prefix": ("gpt2", GPT2),
    "llama_yarn": ("llama", ROTARY | rope("yarn", **YARN) | dict(head_dim=8)),
    "llama_longrope": ("llama", ROTARY | rope("longrope", **LONGROPE) | dict(head_dim=8)),
    "gpt2_layer_scale": ("gpt2", GPT2 | dict(scale_attn_by_inverse_layer_idx=True)),
    "llama_pad": ("llama", ROTARY | dict(pad_token_id=PADDING)),
    "mistral_pad_from_end": ("mistral", ROTARY | dict(pad_token_id=PADDING - 64)),
    "qwen2_pad": ("qwen2", ROTARY | dict(pad_token_id=PADDING)),
    "qwen3_pad_tied": ("qwen3", ROTARY | dict(head_dim=8, tie_word_embeddings=True, pad_token_id=PADDING)),
    "gpt2_pad": ("gpt2", GPT2 | dict(pad_token_id=PADDING)),
    # Quantized by bitsandbytes: rows that are shorter than a block; rows of whole blocks, whose scales are quantized too.
    "llama_nf4": ("llama", ROTARY),
    "llama_nf4_double": ("llama", ROTARY | dict(hidden_size=64, intermediate_size=128, num_hidden_layers=1)),
    "ministral": ("ministral", ROTARY | dict(
        head_dim=8, sliding_window=7, layer_types=["full_attention", "sliding_attention"])),
    "seed_oss": ("seed_oss", ROTARY | dict(
        head_dim=8, attention_dropout=0.0, residual_dropout=0.0, pad_token_id=PADDING)),
    "starcoder2": ("starcoder2", LAYER_NORM | dict(sliding_window=7)),
    "helium": ("helium", ROTARY | dict(head_dim=4, attention_bias=True, mlp_bias=True, pad_token_id=None)),
    "ernie4_5": ("ernie4_5", ROTARY | dict(head_dim=8, use_bias=True, pad_token_id=PADDING, tie_word_embeddings=True)),
    "granite": ("granite", ROTARY | dict(
        embedding_multiplier=12.0, attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=8.0)),
    "arcee": ("arcee", ROTARY | dict(mlp_bias=True)),
    "smollm3": ("smollm3", ROTARY | dict(no_rope_layers=[1, 0], pad_token_id=None)),
    "phi": ("phi", LAYER_NORM | dict(partial_rotary_factor=0.5, qk_layernorm=True)),
    "phi3": ("phi3", ROTARY | dict(partial_rotary_factor=0.5, head_dim=8, sliding_window=7, pad_token_id=None)),
    "glm": ("glm", ROTARY | dict(head_dim=8, pad_token_id=None)),
    "glm4": ("glm4", ROTARY | dict(head_dim=8, pad_token_id=None)),
    "stablelm": ("stablelm", LAYER_NORM | dict(partial_rotary_factor=0.5, use_qkv_bias=True)),
    "gpt_neox": ("gpt_neox", ALL_HEADS | dict(rotary_pct=0.5)),
    "gpt_neox_sequential": ("gpt_neox", ALL_HEADS | dict(rotary_pct=0.5, use_parallel_residual=False)),
    "gptj": ("gptj", GPT2 | dict(rotary_dim=2)),
    "falcon_7b": ("falcon", FALCON),
    "falcon_40b": ("falcon", FALCON | dict(new_decoder_architecture=True, num_kv_heads=2)),
    "cohere": ("cohere", LAYER_NORM | dict(use_qk_norm=True, logit_scale=0.25, pad_token_id=PADDING)),
    "cohere2": ("cohere2", LAYER_NORM | dict(
        sliding_window=7, layer_types=["sliding_attention", "full_attention"], pad_token_id=None)),
    "gemma": ("gemma", ROTARY | dict(head_dim=8, pad_token_id=PADDING)),
    "gemma2": ("gemma2", ROTARY | dict(
        head_dim=8, sliding_window=7, query_pre_attn_scalar=5, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
        pad_token_id=None, attn_implementation="eager")),
    "gemma3_text": ("gemma3_text", ROTARY | dict(
        head_dim=8, sliding_window=7, query_pre_attn_scalar=5, pad_token_id=None,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}})),
    "nemotron": ("nemotron", LAYER_NORM | dict(head_dim=8)),
    "olmo": ("olmo", LAYER_NORM | dict(clip_qkv=0.5, pad_token_id=None)),
    "olmo2": ("olmo2", ROTARY | dict(pad_token_id=None)),
    "olmo3": ("olmo3", ROTARY | dict(
        sliding_window=7, layer_types=["sliding_attention", "full_attention"], pad_token_id=None,
        rope_parameters={"full_attention": {"rope_type": "yarn", "rope_theta": 500.0, **YARN},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}})),
    "exaone4": ("exaone4", ROTARY | dict(
        head_dim=8, sliding_window=7, layer_types=["sliding_attention", "full_attention"])),
    "opt": ("opt", dict(
        vocab_size=64, hidden_size=16, ffn_dim=40, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=32, init_std=0.2, dropout=0.0, pad_token_id=PADDING)),
    "ministral3": ("ministral3", ROTARY | dict(
        head_dim=8, pad_token_id=None,
        rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, **YARN, "original_max_position_embeddings": 8,
                         "llama_4_scaling_beta": 0.5})),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", ROTARY | dict(
        head_dim=8, pad_token_id=None,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 500.0, "factor": 1.0, "alpha": 50.0})),
    "stablelm_12b": ("stablelm", LAYER_NORM | dict(
        partial_rotary_factor=0.5, qk_layernorm=True, use_parallel_residual=True)),
    "granite4": ("granitemoehybrid", ROTARY | dict(
        num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=24, position_embedding_type="rope",
        layer_types=["full_attention"] * 2, mamba_n_heads=2, mamba_d_head=16, attention_multiplier=0.3)),
    "mixtral": ("mixtral", ROTARY | MOE | dict(num_local_experts=4)),
    "qwen2_moe": ("qwen2_moe", ROTARY | MOE | dict(
        num_experts=4, moe_intermediate_size=12, shared_expert_intermediate_size=20, mlp_only_layers=[1])),
    "qwen3_moe": ("qwen3_moe", ROTARY | MOE | dict(num_experts=6, moe_intermediate_size=12, norm_topk_prob=True)),
    "olmoe": ("olmoe", ROTARY | MOE | dict(num_experts=4, clip_qkv=0.5, pad_token_id=None)),
    "granitemoe": ("granitemoe", ROTARY | MOE | dict(num_local_experts=4, residual_multiplier=0.5)),
    "gpt_oss": ("gpt_oss", ROTARY | MOE | dict(
        head_dim=8, num_local_experts=4, sliding_window=7,
        rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, **YARN, "truncate": False})),
    "glm4_moe": ("glm4_moe", ROTARY | MOE | dict(
        head_dim=8, n_routed_experts=8, n_group=4, topk_group=2, moe_intermediate_size=12, routed_scaling_factor=1.5,
        use_qk_norm=True, attention_bias=True)),
    "ernie4_5_moe": ("ernie4_5_moe", ROTARY | dict(
        moe_num_experts=4, moe_k=2, moe_intermediate_size=12, moe_num_shared_experts=1, pad_token_id=None)),
    "llama4_text": ("llama4_text", ROTARY | dict(
        head_dim=8, intermediate_size=12, num_local_experts=4, num_experts_per_tok=1, moe_layers=[1], intermediate_size_mlp=24,
        no_rope_layers=[1, 0], attention_chunk_size=10, floor_scale=4)),
    "deepseek_v2": ("deepseek_v2", LATENT | dict(
        topk_method="group_limited_greedy", q_lora_rank=None, routed_scaling_factor=2.0)),
    "deepseek_v3": ("deepseek_v3", LATENT | dict(
        q_lora_rank=8, rope_parameters={"rope_type": "yarn", "rope_theta": 500.0, **YARN, "mscale": 1.0, "mscale_all_dim": 1.0})),
    # The language model of a multimodal one; the vision tower is stored in bf16.
    "mistral3": ("mistral3", dict(
        text_config=ROTARY | dict(num_hidden_layers=1, sliding_window=7), vision_config=VISION,
        tie_word_embeddings=False)),
    "qwen3_next": ("qwen3_next", ROTARY | MOE | DELTA_NET | dict(
        num_experts=4, moe_intermediate_size=12, shared_expert_intermediate_size=20)),
    "qwen3_5_text": ("qwen3_5_text", ROTARY | DELTA_NET),
    "qwen3_5": ("qwen3_5", dict(
        text_config=ROTARY | DELTA_NET,
        vision_config=dict(
            depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=4, num_position_embeddings=4,
            out_hidden_size=16))),
    "qwen3_5_moe_text": ("qwen3_5_moe_text", {
        key: value for key, value in ROTARY.items() if key != "intermediate_size"} | DELTA_NET | dict(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=20)),
    # ALiBi, with a number of heads that is no power of 2.
    "bloom": ("bloom", dict(vocab_size=64, hidden_size=24, n_layer=2, n_head=6, initializer_range=0.2)),
    "mpt": ("mpt", dict(
        vocab_size=64, d_model=24, n_layers=2, n_heads=6, max_seq_len=64, initializer_range=0.2,
        attn_config=dict(clip_qkv=0.5, softmax_scale=0.3))),
    "falcon_rw": ("falcon", FALCON | dict(
        hidden_size=24, num_attention_heads=6, alibi=True, bias=True, multi_query=False, parallel_attn=False)),
    "apertus": ("apertus", ROTARY | dict(pad_token_id=None)),
    "lfm2": ("lfm2", LAYER_NORM | dict(
        layer_types=["conv", "full_attention"], conv_bias=True, block_multiple_of=8, pad_token_id=PADDING)),
    "gpt_bigcode": ("gpt_bigcode", GPT2),
    "gpt_bigcode_heads": ("gpt_bigcode", GPT2 | dict(multi_query=False, n_inner=40)),
    "minicpm3": ("minicpm3", LATENT_ATTENTION | dict(
        q_lora_rank=8, scale_emb=3, scale_depth=1.0, dim_model_base=4, pad_token_id=None)),
    # The last two layers use the keys and values of the first two, and have inputs of their own, as all have.
    "gemma4_text": ("gemma4_text", ROTARY | dict(
        num_hidden_layers=4, head_dim=8, global_head_dim=16, sliding_window=7, pad_token_id=PADDING,
        layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2, use_double_wide_mlp=True,
        hidden_size_per_layer_input=32, vocab_size_per_layer_input=64, final_logit_softcapping=3.0)),
    "gemma4_moe": ("gemma4_text", ROTARY | dict(
        head_dim=8, global_head_dim=16, sliding_window=7, pad_token_id=None,
        layer_types=["sliding_attention", "full_attention"], attention_k_eq_v=True, num_global_key_value_heads=1,
        hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=12)),
}
# What read_rope reads and rope_frequencies computes: the kinds with each option of theirs, and lengths.
LONG = LONGROPE | dict(short_factor=[1.0, 1.25, 1.5, 2.0])
ROPES = [
    (rope("default"), 64), (rope("linear", factor=4.0), 64), (rope("dynamic", factor=2.0), 64),
    (rope("dynamic", factor=2.0), 200), (rope("llama3", **LLAMA3), 64), (rope("yarn", **YARN), 64),
    (rope("yarn", factor=8.0), 64), (rope("yarn", **YARN, truncate=False), 64),
    (rope("yarn", **YARN, mscale=0.707, mscale_all_dim=0.5), 64), (rope("yarn", **YARN, attention_factor=1.5), 64),
    (rope("yarn", **(YARN | dict(factor=None, beta_slow=2.0, beta_fast=0))), 64),
    (rope("yarn", **YARN, mscale=0.707), 64), (rope("longrope", **LONG), 16), (rope("longrope", **LONG), 17),
    (rope("longrope", **LONG, factor=32.0), 17), (rope("longrope", **LONG, attention_factor=1.25), 8),
    (rope("proportional"), 64), (rope("proportional", partial_rotary_factor=0.6, factor=2.0), 64),
]


def scatter_norms(model):
    """Norm weights and biases away from 1 and 0, so that a forgotten one shows."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
            if name.endswith("q_norm.weight") and model.config.model_type == "gemma4_text":
                parameter.mul_(0.25)  # nothing else scales its scores: a softmax of large ones is a step


def scatter_buffers(model):
    """Correction biases of routers away from 0, and scalars of layers from 1."""
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.fill_(0.8)
            if name.endswith("e_score_correction_bias"):
                buffer.add_(0.1 * torch.randn_like(buffer))


def slow_decays(model):
    """States that last. One that vanishes at once leaves q k^T v, whose norm is a step where q and k are at right angles."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.normal_(-3.0, 0.5)


def padding_token(model):
    return model.config.get_text_config().pad_token_id


def fill_padding(model):
    """transformers begins with zeros in that row. Files hold anything."""
    if padding_token(model) is not None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter is model.get_input_embeddings().weight or "embed_tokens_per_layer" in name:
                    torch.nn.init.normal_(parameter[PADDING], 0.0, 0.2)


def use_old_rope_keys(folder):
    config = json.loads((folder / "config.json").read_text())
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters.pop("rope_theta")
    parameters["type"] = parameters.pop("rope_type")
    config["rope_scaling"] = parameters
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def drop_gpt2_prefix(folder):
    """As the first GPT-2 files: no prefix, and the causal mask as a buffer."""
    tensors = {k.removeprefix("transformer."): v for k, v in load_file(folder / "model.safetensors").items()}
    for layer in range(GPT2["n_layer"]):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 8, 8).tril()
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def round_vision_tower(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors = {k: v.bfloat16() if k.startswith(("vision_tower.", "model.visual.")) else v for k, v in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def quantized(name, model):
    """The same model with weights in NF4. Files of 16 bits are dequantized to 16 bits, whatever computes with them."""
    double = name.endswith("double")
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double)
    with tempfile.TemporaryDirectory() as folder:
        model.to(torch.bfloat16 if double else torch.float32).save_pretrained(folder)
        return AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, device_map="cpu")


def save(name, model, folder):
    if "nf4" in name:
        model = quantized(name, model)
    if name == "llama_bf16":
        model.to(torch.bfloat16)
    if name == "llama_fp16_sharded":
        model.to(torch.float16)
    model.generation_config.pad_token_id = None  # saving refuses one that is counted from the end
    model.save_pretrained(folder, max_shard_size="6KB" if "sharded" in name else "5GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name == "llama_old_keys":
        use_old_rope_keys(folder)
    if name == "gpt2_no_prefix":
        drop_gpt2_prefix(folder)
    if hasattr(model.config, "vision_config"):
        round_vision_tower(folder)


def load(folder, dtype, attention=None):
    """As users do: `model.to(dtype)` would round the rotary frequencies too."""
    kind = AutoModelForImageTextToText if folder.name in ("mistral3", "qwen3_5") else AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=dtype, device_map="cpu", attn_implementation=attention)
    return dequantized(model) if "nf4" in folder.name else model.eval()


def reference(model):
    ids = torch.randint(0, 64, (2, SEQ + 1))
    if padding_token(model) is not None:
        ids[:, 3:20:4] = PADDING
    targets = ids[:, 1:].clone()
    targets[0, :5] = -100
    targets[1, 20:] = -100
    ids = ids[:, :-1].contiguous()
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, 64), targets.view(-1))
    loss.backward()
    found = {
        "ids": ids, "targets": targets, "logits": logits.detach().contiguous(), "loss": loss.detach().view(1),
        "grad_embedding": model.get_input_embeddings().weight.grad.clone(),
    }
    for name, parameter in model.named_parameters():
        if ".0." in name and parameter.grad is not None:
            found["grad." + name] = parameter.grad.clone()
    return found


def frequencies(parameters, seq):
    values = dict(model_type="llama", head_dim=8, max_position_embeddings=64, **parameters)
    config = AutoConfig.for_model(**json.loads(json.dumps(values)))
    kind = parameters["rope_parameters"]["rope_type"]
    if kind == "default":
        found, attention = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        found, attention = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=seq)
    return dict(config=values, seq=seq, frequencies=found.double().tolist(), attention_factor=attention)


def main():
    wanted = sys.argv[1:]
    if not wanted:
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir()
        rows = [json.dumps(frequencies(*row)) for row in ROPES]
        (OUT / "rope_frequencies.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")
    for seed, (name, (family, values)) in enumerate(VARIANTS.items()):
        if wanted and name not in wanted:
            continue
        torch.manual_seed(seed)
        attention = values.get("attn_implementation")
        values = {key: value for key, value in values.items() if key != "attn_implementation"}
        kind = AutoModelForImageTextToText if "text_config" in values else AutoModelForCausalLM
        model = kind.from_config(AutoConfig.for_model(family, **values)).eval()
        scatter_norms(model)
        scatter_buffers(model)
        slow_decays(model)
        fill_padding(model)
        folder = OUT / name
        save(name, model, folder)
        expected = reference(load(folder, torch.float32, attention))
        if name == "llama_bf16":
            with torch.no_grad():
                expected["logits_bf16"] = load(folder, torch.bfloat16)(expected["ids"]).logits.float()
        save_file(expected, folder / "expected.safetensors")
        print(name, sum(f.stat().st_size for f in folder.iterdir()))


if __name__ == "__main__":
    main()
