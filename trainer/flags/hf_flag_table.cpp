#include "trainer/flags/hf_flag_table.h"

#include <fmt/format.h>

#include <array>

#include "base/printable.h"

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

constexpr HfFlag truth(std::string_view name, std::string_view target) {
  return {name, Kind::kTruth, target};
}

constexpr HfFlag idle(std::string_view name, std::string_view text) {
  return {name, Kind::kIdle, "", text};
}

constexpr HfFlag refused(std::string_view name, std::string_view text,
                         std::string_view neutral = "false,none,no,0,0.0,-1") {
  return {name, Kind::kRefused, "", text, neutral};
}

constexpr HfFlag wished(std::string_view name, std::string_view possible, std::string_view text,
                        std::string_view neutral = "false,none,no,0,0.0,-1") {
  return {name, Kind::kWished, possible, text, neutral};
}

constexpr HfFlag several(HfFlag flag) {
  flag.several = true;
  return flag;
}

constexpr std::string_view kYes = "true,t,yes,y,1", kNo = "false,f,no,n,0";
constexpr std::string_view kOwnFiles = "Zeroth reads files of this machine: --model, --data";
constexpr std::string_view kHub = "nothing is sent to a hub: copy --output there";
constexpr std::string_view kNoDownload = "nothing is downloaded";
constexpr std::string_view kSpeed = "the tokens are read once, before training";
constexpr std::string_view kServices = "no service is reached from here";
constexpr std::string_view kAllShown = "every step is shown and stands in --metrics";
constexpr std::string_view kRanks = "zeroth chooses what connects the ranks";
constexpr std::string_view kCompiled = "kernels are compiled with Zeroth, none at run time";
constexpr std::string_view kLossOnly = "an evaluation gives the loss and keeps no predictions";
constexpr std::string_view kOneMachine = "rank 0 tells and saves for all machines";
constexpr std::string_view kOneFp16 = "fp16 has fp32 masters and a loss scale";
constexpr std::string_view kOtherHardware = "it computes on CPUs and NVIDIA GPUs";
constexpr std::string_view kStored =
    "the precision in which weights are stored does not matter: --bf16, --fp16";
constexpr std::string_view kShards = "the zero_optimization section of ds_config.json shards";
constexpr std::string_view kOptimizer =
    "AdamW is the default, and \"optimizer\" in ds_config.json chooses another";
constexpr std::string_view kOwnTokenizer = "tokenizer and config.json are read from --model, ";
constexpr std::string_view kEvalPrecision =
    "an evaluation has the precision of the training, which is ";
constexpr std::string_view kOrder =
    "samples come in shuffled order, or with --no-shuffle in that of the file";

constexpr auto kFlags = std::to_array<HfFlag>({
    value("model_name_or_path", "--model"),
    value("train_file", "--data"),
    value("validation_file", "--eval-data"),
    value("output_dir", "--output"),
    on("overwrite_output_dir", "--overwrite"),
    on("full_determinism", "--deterministic"),
    truth("use_cpu", "--use_cpu"),
    truth("no_cuda", "--use_cpu"),
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

    truth("do_train", "--do_train"),
    truth("do_eval", "--do_eval"),
    value("eval_strategy", "--eval_strategy"),
    value("evaluation_strategy", "--eval_strategy"),
    value("eval_steps", "--eval-every", "0"),
    value("eval_delay", "--eval_delay"),
    truth("eval_on_start", "--eval_on_start"),
    value("save_strategy", "--save_strategy"),
    value("save_steps", "--save-every"),
    value("save_total_limit", "--save_total_limit"),
    truth("save_only_model", "--save_only_model"),
    value("resume_from_checkpoint", "--resume", "false,none"),
    truth("load_best_model_at_end", "--load_best_model_at_end"),
    value("metric_for_best_model", "--metric_for_best_model"),
    truth("greater_is_better", "--greater_is_better"),
    value("logging_strategy", "--logging_strategy"),
    value("logging_steps", "--logging_steps"),
    truth("logging_first_step", "--logging_first_step"),
    several(value("report_to", "--report_to")),
    value("logging_dir", "--logging_dir"),

    idle("logging_nan_inf_filter", kAllShown),
    idle("include_num_input_tokens_seen", kAllShown),
    idle("include_tokens_per_second", kAllShown),
    idle("disable_tqdm", "the progress line redraws itself on a terminal only"),
    idle("log_level", "\"log_level\" in ds_config.json says how much is printed"),
    idle("log_level_replica", kOneMachine),
    idle("log_on_each_node", kOneMachine),
    idle("save_on_each_node", kOneMachine),
    idle("skip_memory_metrics", "--metrics has the peak of memory"),
    several(idle("debug", "a gradient that is not finite is named by its block and parameter")),
    idle("dataloader_num_workers", kSpeed),
    idle("dataloader_pin_memory", kSpeed),
    idle("dataloader_persistent_workers", kSpeed),
    idle("dataloader_prefetch_factor", kSpeed),
    idle("dataloader_multiprocessing_context", kSpeed),
    idle("dataloader_in_order", kSpeed),
    idle("preprocessing_num_workers", kSpeed),
    idle("overwrite_cache", kSpeed),
    idle("streaming", kSpeed),
    idle("use_fast_tokenizer", kSpeed),
    idle("low_cpu_mem_usage", "a rank reads only its own part of the weights"),
    idle("remove_unused_columns", "fields that are not named are not read"),
    several(idle("label_names", "the labels are the tokens themselves")),
    idle("length_column_name", kOrder),
    idle("use_cache", "training keeps no keys and values"),
    idle("past_index", "training keeps no keys and values"),
    idle("attn_implementation", "the fastest one of the device is taken"),
    idle("use_flash_attention_2", "the fastest one of the device is taken"),
    idle("use_flash_attn", "the fastest one of the device is taken"),
    idle("model_type", "config.json says it"),
    idle("cache_dir", kNoDownload),
    idle("token", kNoDownload),
    idle("use_auth_token", kNoDownload),
    idle("save_safetensors", "safetensors is what is written"),
    idle("enable_jit_checkpoint", "SIGTERM saves the model in any case"),
    idle("ignore_data_skip", "a run goes on at its next sample, and reads none before it"),
    idle("restore_callback_states_from_checkpoint", "all that a run counts goes on"),
    idle("prediction_loss_only", kLossOnly),
    idle("eval_accumulation_steps", kLossOnly),
    idle("eval_do_concat_batches", kLossOnly),
    idle("eval_use_gather_object", kLossOnly),
    idle("batch_eval_metrics", kLossOnly),
    several(idle("include_for_metrics", kLossOnly)),
    idle("include_inputs_for_metrics", kLossOnly),
    idle("use_legacy_prediction_loop", kLossOnly),
    idle("jit_mode_eval", kCompiled),
    idle("torch_compile", kCompiled),
    idle("torch_compile_backend", kCompiled),
    idle("torch_compile_mode", kCompiled),
    idle("torchdynamo", kCompiled),
    idle("use_ipex", kCompiled),
    idle("use_liger_kernel", kCompiled),
    idle("liger_kernel_config", kCompiled),
    idle("torch_empty_cache_steps", "memory that is free is used again"),
    idle("gradient_checkpointing_kwargs",
         "recompute has one kind; --gradient-checkpointing=N takes every N-th block"),
    idle("torch_dtype", kStored),
    idle("dtype", kStored),
    idle("fp16_opt_level", kOneFp16),
    idle("fp16_backend", kOneFp16),
    idle("half_precision_backend", kOneFp16),
    idle("tf32", "products of fp32 values stay in fp32; --bf16 is the fast precision"),
    idle("ddp_find_unused_parameters", kRanks),
    idle("ddp_bucket_cap_mb", kRanks),
    idle("ddp_broadcast_buffers", kRanks),
    idle("ddp_static_graph", kRanks),
    idle("ddp_backend", kRanks),
    idle("xpu_backend", kRanks),
    idle("fsdp_config", "it says how --fsdp shards"),
    idle("fsdp_min_num_params", "it says how --fsdp shards"),
    idle("fsdp_transformer_layer_cls_to_wrap", "it says how --fsdp shards"),
    idle("mp_parameters", "it is for SageMaker's launcher"),
    idle("ray_scope", "it is for a search of hyper-parameters"),
    idle("tpu_num_cores", kOtherHardware),
    idle("tpu_metrics_debug", kOtherHardware),
    idle("run_name", kServices),
    idle("project", kServices),
    idle("trackio_space_id", kServices),
    idle("trackio_bucket_id", kServices),
    idle("trackio_static_space_id", kServices),
    idle("hub_model_id", kHub),
    idle("hub_strategy", kHub),
    idle("hub_token", kHub),
    idle("hub_private_repo", kHub),
    idle("hub_always_push", kHub),
    idle("hub_revision", kHub),
    idle("push_to_hub_model_id", kHub),
    idle("push_to_hub_organization", kHub),
    idle("push_to_hub_token", kHub),

    refused("dataset_name", kOwnFiles),
    refused("dataset_config_name", kOwnFiles),
    wished("tokenizer_name", "", kOwnTokenizer),
    wished("config_name", "", kOwnTokenizer),
    refused("config_overrides", "change config.json in --model"),
    refused("model_revision", kOwnFiles, "main"),
    refused("trust_remote_code", "no Python runs here; the README lists the models"),
    refused("push_to_hub", kHub),
    wished("validation_split_percentage", "",
           "no part of --data is set aside: name a file of its own, --eval-data", "5"),
    wished("keep_linebreaks", kNo, "a text is trained as it stands in the file", "true"),
    refused("dataset_text_field", "the field is 'text', or a pair by --prompt-field", "text"),
    wished("optim", "sgd,adagrad,lion_32bit", kOptimizer,
           "adamw_torch,adamw_torch_fused,adamw_apex_fused,adamw_torch_xla,adamw_torch_npu_fused,"
           "adamw_hf,adamw"),
    refused("optim_args", kOptimizer),
    several(refused("optim_target_modules", kOptimizer)),
    refused("adafactor", kOptimizer),
    wished("average_tokens_across_devices", kNo,
           "the loss is the mean over the tokens of all ranks, of which there are ", "true"),
    refused("label_smoothing_factor", "the loss is plain cross-entropy"),
    refused("neftune_noise_alpha", "it is not there"),
    refused("group_by_length", kOrder),
    wished("train_sampling_strategy", "random,sequential", kOrder, "none"),
    refused("auto_find_batch_size", "the message of a run that lacks memory names what fits"),
    wished("data_seed", "", "--seed is that of the data too, and is ", "none"),
    refused("do_predict", "it only trains and evaluates"),
    wished("fp16_full_eval", kYes, kEvalPrecision),
    wished("bf16_full_eval", kYes, kEvalPrecision),
    refused("use_mps_device", kOtherHardware),
    refused("fsdp", kShards, "false,none,no,"),
    refused("sharded_ddp", kShards),
    refused("accelerator_config", "--micro-batch and --accumulation say how batches are dealt"),
    refused("parallelism_config", kShards),
    refused("packing",
            "samples are not packed; --long-text chunk joins texts and fills every position"),
    refused("completion_only_loss", "of a pair the completion alone is trained", "true"),
    refused("assistant_only_loss", "of a pair the completion alone is trained; chats are not read"),
    refused("config", "a .json file of flags is read as the only argument: finetune FILE.json"),
    refused("use_peft", "adapters are not there yet"),
    refused("lora_r", "adapters are not there yet"),
    refused("load_in_8bit", "quantised weights are not there yet"),
    refused("load_in_4bit", "quantised weights are not there yet"),
});

}  // namespace

std::string Wish::refusal() const {
  return fmt::format("{}{}{}: refused: {}", typed, value.empty() ? "" : " ", shortened(value),
                     flag->text);
}

std::span<const HfFlag> hf_flags() {
  return kFlags;
}

}  // namespace zeroth::trainer
