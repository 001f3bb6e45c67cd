// The table of Hugging Face Trainer's flags and their counterparts here.
#include <fmt/format.h>

#include <array>

#include "base/text/printable.h"
#include "trainer/flags/hf_flags.h"

namespace zeroth::trainer {
namespace {

using Kind = HfFlag::Kind;

constexpr HfFlag value(std::string_view name, std::string_view target,
                       std::string_view no_op_values = "") {
  return {name, Kind::kValue, target, "", no_op_values};
}

constexpr HfFlag on(std::string_view name, std::string_view target) {
  return {name, Kind::kSwitch, target};
}

constexpr HfFlag bool_flag(std::string_view name, std::string_view target) {
  return {name, Kind::kBool, target};
}

constexpr HfFlag ignored(std::string_view name, std::string_view text) {
  return {name, Kind::kIgnored, "", text};
}

constexpr HfFlag refused(std::string_view name, std::string_view text,
                         std::string_view no_op_values = "false,none,no,0,0.0,-1") {
  return {name, Kind::kRefused, "", text, no_op_values};
}

constexpr HfFlag request(std::string_view name, std::string_view possible, std::string_view text,
                         std::string_view no_op_values = "false,none,no,0,0.0,-1") {
  return {name, Kind::kRequest, possible, text, no_op_values};
}

constexpr HfFlag takes_list(HfFlag flag) {
  flag.takes_list = true;
  return flag;
}

constexpr std::string_view kYes = "true,t,yes,y,1", kNo = "false,f,no,n,0";
constexpr std::string_view kOwnFiles = "Zeroth reads local files: --model, --data";
constexpr std::string_view kHub = "uploads to a hub are not supported: upload --output yourself";
constexpr std::string_view kNoDownload = "nothing is downloaded";
constexpr std::string_view kSpeed = "the tokens are read once, before training";
constexpr std::string_view kServices = "no service is reached from here";
constexpr std::string_view kAllShown = "every step is shown and written to --metrics";
constexpr std::string_view kRanks = "zeroth chooses the communication backend";
constexpr std::string_view kCompiled = "kernels are compiled with Zeroth, not at run time";
constexpr std::string_view kLossOnly = "an evaluation computes the loss and keeps no predictions";
constexpr std::string_view kOneMachine = "rank 0 logs and saves for all machines";
constexpr std::string_view kOneFp16 = "fp16 has fp32 masters and a loss scale";
constexpr std::string_view kOtherHardware = "Zeroth runs on CPUs and NVIDIA GPUs";
constexpr std::string_view kStored =
    "the stored precision of weights does not matter: use --bf16 or --fp16";
constexpr std::string_view kShards = "zero_optimization in ds_config.json configures sharding";
constexpr std::string_view kOptimizer =
    "AdamW is the default, and \"optimizer\" in ds_config.json chooses another";
constexpr std::string_view kOwnTokenizer = "tokenizer and config.json are read from --model, ";
constexpr std::string_view kEvalPrecision =
    "an evaluation has the precision of the training, which is ";
constexpr std::string_view kOrder = "samples are shuffled, or with --no-shuffle in file order";

constexpr auto kFlags = std::to_array<HfFlag>({
    value("model_name_or_path", "--model"),
    value("train_file", "--data"),
    value("validation_file", "--eval-data"),
    value("output_dir", "--output"),
    on("overwrite_output_dir", "--overwrite"),
    on("full_determinism", "--deterministic"),
    bool_flag("use_cpu", "--use_cpu"),
    bool_flag("no_cuda", "--use_cpu"),
    value("block_size", "--seq-len"),
    value("max_seq_length", "--max-length"),
    value("max_length", "--max-length"),
    value("model_max_length", "--max-length"),
    value("per_device_train_batch_size", "--micro-batch"),
    value("per_gpu_train_batch_size", "--micro-batch"),
    value("per_device_eval_batch_size", "--eval-micro-batch"),
    value("per_gpu_eval_batch_size", "--eval-micro-batch"),
    value("gradient_accumulation_steps", "--accumulation"),
    on("gradient_checkpointing", "--gradient-checkpointing"),
    on("bf16", "--bf16"),
    on("fp16", "--fp16"),
    value("num_train_epochs", "--epochs"),
    value("max_steps", "--steps", "-1,0"),
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
    value("lr_scheduler_kwargs", "--lr_scheduler_kwargs", "none,{},"),
    value("max_train_samples", "--max_train_samples"),
    value("max_eval_samples", "--max-eval-samples"),
    value("ddp_timeout", "--timeout"),
    on("dataloader_drop_last", "--drop-last"),

    bool_flag("do_train", "--do_train"),
    bool_flag("do_eval", "--do_eval"),
    value("eval_strategy", "--eval_strategy"),
    value("evaluation_strategy", "--eval_strategy"),
    value("eval_steps", "--eval-every", "0"),
    value("eval_delay", "--eval_delay"),
    bool_flag("eval_on_start", "--eval_on_start"),
    value("save_strategy", "--save_strategy"),
    value("save_steps", "--save-every"),
    value("save_total_limit", "--save_total_limit"),
    bool_flag("save_only_model", "--save_only_model"),
    value("resume_from_checkpoint", "--resume", "false,none"),
    bool_flag("load_best_model_at_end", "--load_best_model_at_end"),
    value("metric_for_best_model", "--metric_for_best_model"),
    bool_flag("greater_is_better", "--greater_is_better"),
    value("logging_strategy", "--logging_strategy"),
    value("logging_steps", "--logging_steps"),
    bool_flag("logging_first_step", "--logging_first_step"),
    takes_list(value("report_to", "--report_to")),
    value("logging_dir", "--logging_dir"),

    ignored("logging_nan_inf_filter", kAllShown),
    ignored("include_num_input_tokens_seen", kAllShown),
    ignored("include_tokens_per_second", kAllShown),
    ignored("disable_tqdm", "the progress line is redrawn only on a terminal"),
    ignored("log_level", "\"log_level\" in ds_config.json sets how much is printed"),
    ignored("log_level_replica", kOneMachine),
    ignored("log_on_each_node", kOneMachine),
    ignored("save_on_each_node", kOneMachine),
    ignored("skip_memory_metrics", "--metrics has the peak memory"),
    takes_list(ignored("debug", "a non-finite gradient is reported with its block and parameter")),
    ignored("dataloader_num_workers", kSpeed),
    ignored("dataloader_pin_memory", kSpeed),
    ignored("dataloader_persistent_workers", kSpeed),
    ignored("dataloader_prefetch_factor", kSpeed),
    ignored("dataloader_multiprocessing_context", kSpeed),
    ignored("dataloader_in_order", kSpeed),
    ignored("preprocessing_num_workers", kSpeed),
    ignored("overwrite_cache", kSpeed),
    ignored("streaming", kSpeed),
    ignored("use_fast_tokenizer", kSpeed),
    ignored("low_cpu_mem_usage", "a rank reads only its own part of the weights"),
    ignored("remove_unused_columns", "fields that no flag names are not read"),
    takes_list(ignored("label_names", "the labels are the tokens themselves")),
    ignored("length_column_name", kOrder),
    ignored("use_cache", "training has no cache of keys and values"),
    ignored("past_index", "training has no cache of keys and values"),
    ignored("attn_implementation", "the fastest one for the device is used"),
    ignored("use_flash_attention_2", "the fastest one for the device is used"),
    ignored("use_flash_attn", "the fastest one for the device is used"),
    ignored("model_type", "config.json sets it"),
    ignored("cache_dir", kNoDownload),
    ignored("token", kNoDownload),
    ignored("use_auth_token", kNoDownload),
    ignored("save_safetensors", "models are always saved as safetensors"),
    ignored("enable_jit_checkpoint", "SIGTERM always saves the model"),
    ignored("ignore_data_skip",
            "a resumed run starts at its next sample, and reads none before it"),
    ignored("restore_callback_states_from_checkpoint", "a resumed run restores all its counters"),
    ignored("prediction_loss_only", kLossOnly),
    ignored("eval_accumulation_steps", kLossOnly),
    ignored("eval_do_concat_batches", kLossOnly),
    ignored("eval_use_gather_object", kLossOnly),
    ignored("batch_eval_metrics", kLossOnly),
    takes_list(ignored("include_for_metrics", kLossOnly)),
    ignored("include_inputs_for_metrics", kLossOnly),
    ignored("use_legacy_prediction_loop", kLossOnly),
    ignored("jit_mode_eval", kCompiled),
    ignored("torch_compile", kCompiled),
    ignored("torch_compile_backend", kCompiled),
    ignored("torch_compile_mode", kCompiled),
    ignored("torchdynamo", kCompiled),
    ignored("use_ipex", kCompiled),
    ignored("use_liger_kernel", kCompiled),
    ignored("liger_kernel_config", kCompiled),
    ignored("torch_empty_cache_steps", "free memory is reused"),
    ignored("gradient_checkpointing_kwargs",
            "there is one kind of recompute; --gradient-checkpointing=N applies it to every N-th "
            "block"),
    ignored("torch_dtype", kStored),
    ignored("dtype", kStored),
    ignored("fp16_opt_level", kOneFp16),
    ignored("fp16_backend", kOneFp16),
    ignored("half_precision_backend", kOneFp16),
    ignored("tf32", "fp32 matrix products stay in fp32; --bf16 is the fast precision"),
    ignored("ddp_find_unused_parameters", kRanks),
    ignored("ddp_bucket_cap_mb", kRanks),
    ignored("ddp_broadcast_buffers", kRanks),
    ignored("ddp_static_graph", kRanks),
    ignored("ddp_backend", kRanks),
    ignored("xpu_backend", kRanks),
    ignored("fsdp_config", "it configures --fsdp"),
    ignored("fsdp_min_num_params", "it configures --fsdp"),
    ignored("fsdp_transformer_layer_cls_to_wrap", "it configures --fsdp"),
    ignored("mp_parameters", "it is for SageMaker's launcher"),
    ignored("ray_scope", "it is for a search of hyper-parameters"),
    ignored("tpu_num_cores", kOtherHardware),
    ignored("tpu_metrics_debug", kOtherHardware),
    ignored("run_name", kServices),
    ignored("project", kServices),
    ignored("trackio_space_id", kServices),
    ignored("trackio_bucket_id", kServices),
    ignored("trackio_static_space_id", kServices),
    ignored("hub_model_id", kHub),
    ignored("hub_strategy", kHub),
    ignored("hub_token", kHub),
    ignored("hub_private_repo", kHub),
    ignored("hub_always_push", kHub),
    ignored("hub_revision", kHub),
    ignored("push_to_hub_model_id", kHub),
    ignored("push_to_hub_organization", kHub),
    ignored("push_to_hub_token", kHub),

    refused("dataset_name", kOwnFiles),
    refused("dataset_config_name", kOwnFiles),
    request("tokenizer_name", "", kOwnTokenizer),
    request("config_name", "", kOwnTokenizer),
    refused("config_overrides", "change config.json in --model"),
    refused("model_revision", kOwnFiles, "main"),
    refused("trust_remote_code", "Python code is not run; the README lists the supported models"),
    refused("push_to_hub", kHub),
    request("validation_split_percentage", "",
            "--data is not split: use a separate file, --eval-data", "5"),
    request("keep_linebreaks", kNo, "a text is used as it is in the file", "true"),
    refused("dataset_text_field", "the field is 'text', or a pair set by --prompt-field", "text"),
    request("optim", "sgd,adagrad,lion_32bit", kOptimizer,
            "adamw_torch,adamw_torch_fused,adamw_apex_fused,adamw_torch_xla,adamw_torch_npu_fused,"
            "adamw_hf,adamw"),
    refused("optim_args", kOptimizer),
    takes_list(refused("optim_target_modules", kOptimizer)),
    refused("adafactor", kOptimizer),
    request("average_tokens_across_devices", kNo,
            "the loss is the mean over the tokens of all ranks, of which there are ", "true"),
    refused("label_smoothing_factor", "the loss is plain cross-entropy"),
    refused("neftune_noise_alpha", "noisy embeddings are not implemented"),
    refused("group_by_length", kOrder),
    request("train_sampling_strategy", "random,sequential", kOrder, "none"),
    refused("auto_find_batch_size", "the out-of-memory error names what fits"),
    request("data_seed", "", "--seed also seeds the data, and is ", "none"),
    refused("do_predict", "finetune only trains and evaluates"),
    request("fp16_full_eval", kYes, kEvalPrecision),
    request("bf16_full_eval", kYes, kEvalPrecision),
    refused("use_mps_device", kOtherHardware),
    refused("fsdp", kShards, "false,none,no,"),
    refused("sharded_ddp", kShards),
    refused("accelerator_config", "--micro-batch and --accumulation set how batches are split"),
    refused("parallelism_config", kShards),
    refused("packing",
            "samples are not packed; --long-text chunk joins texts and fills every position"),
    refused("completion_only_loss", "only the completion of a pair is trained on", "true"),
    refused("assistant_only_loss",
            "only the completion of a pair is trained on; chats are not supported"),
    refused("config", "a .json file of flags must be the only argument: finetune FILE.json"),
    refused("use_peft", "adapters are not implemented yet"),
    refused("lora_r", "adapters are not implemented yet"),
    refused("load_in_8bit", "quantized weights are not implemented yet"),
    refused("load_in_4bit", "quantized weights are not implemented yet"),
});

}  // namespace

std::string HfRequest::refusal() const {
  return fmt::format("{}{}{}: not supported: {}", typed, value.empty() ? "" : " ", shortened(value),
                     flag->text);
}

std::span<const HfFlag> hf_flags() {
  return kFlags;
}

}  // namespace zeroth::trainer
