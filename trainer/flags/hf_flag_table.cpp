#include "trainer/flags/hf_flag_table.h"

#include <array>

namespace zeroth::trainer {
namespace {

using Kind = HfFlag::Kind;

constexpr HfFlag value(std::string_view name, std::string_view target,
                       std::string_view neutral = "") {
  return {name, Kind::kValue, target, "", neutral};
}

constexpr HfFlag on(std::string_view name, std::string_view target) {
  return {name, Kind::kSwitch, target};
}

constexpr HfFlag idle(std::string_view name, std::string_view text) {
  return {name, Kind::kIdle, "", text};
}

constexpr HfFlag refused(std::string_view name, std::string_view text,
                         std::string_view neutral = "false,none,no,0,0.0,-1") {
  return {name, Kind::kRefused, "", text, neutral};
}

constexpr std::string_view kOwnFiles = "Zeroth reads files of this machine: --model, --data";
constexpr std::string_view kHub = "nothing is sent to a hub: copy --output there";
constexpr std::string_view kSpeed = "the tokens are read once, before training";
constexpr std::string_view kMonitors =
    "monitors stand in ds_config.json: \"tensorboard\" or \"csv_monitor\"";
constexpr std::string_view kAllShown = "every step is shown and stands in --metrics";
constexpr std::string_view kRanks = "zeroth chooses what connects the ranks";
constexpr std::string_view kCompiled = "nothing is compiled at run time";

constexpr auto kFlags = std::to_array<HfFlag>({
    value("model_name_or_path", "--model"),
    value("train_file", "--data"),
    value("validation_file", "--eval-data"),
    value("output_dir", "--output"),
    on("overwrite_output_dir", "--overwrite"),
    on("full_determinism", "--deterministic"),
    value("block_size", "--seq-len"),
    value("max_seq_length", "--seq-len"),
    value("max_length", "--seq-len"),
    value("model_max_length", "--seq-len"),
    value("per_device_train_batch_size", "--micro-batch"),
    value("per_device_eval_batch_size", "--eval-micro-batch"),
    value("gradient_accumulation_steps", "--accumulation"),
    on("gradient_checkpointing", "--gradient-checkpointing"),
    on("bf16", "--bf16"),
    on("fp16", "--fp16"),
    value("num_train_epochs", "--epochs"),
    value("max_steps", "--steps", "-1"),
    value("seed", "--seed"),
    value("learning_rate", "--lr"),
    value("weight_decay", "--weight-decay"),
    {"adam_beta1", Kind::kBeta, "0"},
    {"adam_beta2", Kind::kBeta, "1"},
    value("adam_epsilon", "--eps"),
    value("max_grad_norm", "--max-grad-norm"),
    value("warmup_steps", "--warmup-steps"),
    value("warmup_ratio", "--warmup-ratio"),
    value("lr_scheduler_type", "--lr_scheduler_type"),
    value("eval_steps", "--eval-every"),
    value("save_steps", "--save-every"),
    value("max_eval_samples", "--max-eval-samples"),
    value("ddp_timeout", "--timeout"),
    on("dataloader_drop_last", "--drop-last"),

    idle("do_train", "training is what finetune does; --eval-only evaluates"),
    idle("do_eval", "--eval-data is evaluated at the end"),
    idle("logging_steps", kAllShown),
    idle("logging_strategy", kAllShown),
    idle("logging_first_step", kAllShown),
    idle("logging_nan_inf_filter", kAllShown),
    idle("include_num_input_tokens_seen", kAllShown),
    idle("include_tokens_per_second", kAllShown),
    idle("disable_tqdm", "the progress line redraws itself on a terminal only"),
    idle("log_level", "\"log_level\" in ds_config.json says how much is printed"),
    idle("skip_memory_metrics", "--metrics has the peak of memory"),
    idle("dataloader_num_workers", kSpeed),
    idle("dataloader_pin_memory", kSpeed),
    idle("dataloader_persistent_workers", kSpeed),
    idle("dataloader_prefetch_factor", kSpeed),
    idle("preprocessing_num_workers", kSpeed),
    idle("overwrite_cache", kSpeed),
    idle("use_fast_tokenizer", kSpeed),
    idle("low_cpu_mem_usage", "a rank reads only its own part of the weights"),
    idle("remove_unused_columns", "fields that are not named are not read"),
    idle("use_cache", "training keeps no keys and values"),
    idle("attn_implementation", "the fastest one of the device is taken"),
    idle("cache_dir", "nothing is downloaded"),
    idle("save_only_model", "a saved folder holds the weights and no state of the optimizer yet"),
    idle("save_safetensors", "safetensors is what is written"),
    idle("save_strategy", "--save-every says when a model is saved"),
    idle("eval_strategy", "--eval-every says when the model is evaluated, the end comes anyway"),
    idle("evaluation_strategy", "--eval-every says when the model is evaluated"),
    idle("prediction_loss_only", "an evaluation gives the loss"),
    idle("torch_dtype",
         "the precision in which weights are stored does not matter: --bf16, --fp16"),
    idle("dtype", "the precision in which weights are stored does not matter: --bf16, --fp16"),
    idle("ddp_find_unused_parameters", kRanks),
    idle("ddp_bucket_cap_mb", kRanks),
    idle("ddp_broadcast_buffers", kRanks),
    idle("ddp_backend", kRanks),
    idle("run_name", kMonitors),
    idle("logging_dir", kMonitors),
    idle("tf32", "products of fp32 values stay in fp32; --bf16 is the fast precision"),
    idle("use_cpu", "DS_ACCELERATOR=cpu in the environment keeps a machine on its CPU"),
    idle("hub_model_id", kHub),
    idle("hub_strategy", kHub),

    refused("dataset_name", kOwnFiles),
    refused("dataset_config_name", kOwnFiles),
    refused("tokenizer_name", "the tokenizer is read from --model"),
    refused("config_name", "config.json is read from --model"),
    refused("model_revision", kOwnFiles, "main"),
    refused("trust_remote_code", "no Python runs here; the README lists the models"),
    refused("push_to_hub", kHub),
    refused("report_to", kMonitors, "none"),
    refused("max_train_samples", "--data is trained whole: cut the file, or give --steps"),
    refused("validation_split_percentage", "name a file of its own: --eval-data"),
    refused("dataset_text_field", "the field is 'text', or a pair by --prompt-field", "text"),
    refused("optim", "write \"optimizer\" into ds_config.json",
            "adamw_torch,adamw_torch_fused,adamw_hf,adamw"),
    refused("optim_args", "write \"optimizer\" into ds_config.json"),
    refused("lr_scheduler_kwargs", "write \"scheduler\" into ds_config.json"),
    refused("save_total_limit", "the newest two are kept", "2"),
    refused("load_best_model_at_end", "the last model is the one that is saved"),
    refused("resume_from_checkpoint", "resuming is not there yet"),
    refused("label_smoothing_factor", "the loss is plain cross-entropy"),
    refused("neftune_noise_alpha", "it is not there"),
    refused("group_by_length",
            "samples come in shuffled order, or with --no-shuffle in that of the file"),
    refused("length_column_name", "samples are not grouped by length", "length"),
    refused("auto_find_batch_size", "the message of a run that lacks memory names what fits"),
    refused("data_seed", "--seed is that of the data too"),
    refused("eval_accumulation_steps", "an evaluation keeps no predictions"),
    refused("eval_delay", "evaluation starts with the first --eval-every"),
    refused("do_predict", "it only trains and evaluates"),
    refused("fp16_full_eval", "an evaluation has the precision of the training"),
    refused("bf16_full_eval", "an evaluation has the precision of the training"),
    refused("torch_compile", kCompiled),
    refused("torch_compile_backend", kCompiled),
    refused("torch_compile_mode", kCompiled),
    refused("use_liger_kernel", kCompiled),
    refused("gradient_checkpointing_kwargs",
            "recompute has no kinds: --gradient-checkpointing[=N]"),
    refused("fsdp", "the zero_optimization section of ds_config.json shards"),
    refused("fsdp_config", "the zero_optimization section of ds_config.json shards"),
    refused("packing", "samples are not packed; .txt and .bin data fill every position"),
    refused("use_peft", "adapters are not there yet"),
    refused("lora_r", "adapters are not there yet"),
    refused("load_in_8bit", "quantised weights are not there yet"),
    refused("load_in_4bit", "quantised weights are not there yet"),
});

}  // namespace

std::span<const HfFlag> hf_flags() {
  return kFlags;
}

}  // namespace zeroth::trainer
