// The table of Hugging Face Trainer's flags and their counterparts here.
#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/text/printable.h"
#include "base/text/units.h"
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
constexpr std::string_view kLossOnly = "an evaluation computes the loss and keeps no predictions";
constexpr std::string_view kOtherHardware = "Zeroth runs on CPUs and NVIDIA GPUs";
constexpr std::string_view kShards = "zero_optimization in ds_config.json configures sharding";
constexpr std::string_view kOptimizer =
    "AdamW is the default, and \"optimizer\" in ds_config.json chooses another";
constexpr std::string_view kDora = "the adapter's norms are not implemented";
constexpr std::string_view kQuantized =
    "weights in 8 bits are not supported; --load_in_4bit keeps them in NF4";
constexpr std::string_view kOrder = "samples are shuffled, or with --no-shuffle in file order";

// The rows of the table. A row may name several flags, separated by spaces.
constexpr auto kRows = std::to_array<HfFlag>({
    value("model_name_or_path", "--model"),
    value("train_file", "--data"),
    value("validation_file", "--eval-data"),
    value("output_dir", "--output"),
    on("overwrite_output_dir", "--overwrite"),
    on("full_determinism", "--deterministic"),
    bool_flag("use_cpu no_cuda", "--use_cpu"),
    value("block_size", "--seq-len"),
    value("max_seq_length max_length model_max_length", "--max-length"),
    value("per_device_train_batch_size per_gpu_train_batch_size", "--micro-batch"),
    value("per_device_eval_batch_size per_gpu_eval_batch_size", "--eval-micro-batch"),
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
    value("max_train_samples max_samples", "--max_train_samples"),
    value("max_eval_samples", "--max-eval-samples"),
    value("ddp_timeout", "--timeout"),
    value("dataset_text_field", "--text-field", "text"),
    value("chat_template_path", "--chat-template"),
    bool_flag("assistant_only_loss", "--assistant_only_loss"),
    bool_flag("completion_only_loss", "--completion_only_loss"),
    on("dataloader_drop_last", "--drop-last"),
    on("packing", "--packing"),
    on("group_by_length", "--group-by-length"),
    on("overwrite_cache", "--overwrite_cache"),
    bool_flag("eval_packing", "--eval_packing"),

    on("use_peft", "--use_peft"),
    value("lora_model_dir", "--adapter"),
    value("lora_r", "--lora_r"),
    value("lora_alpha", "--lora_alpha"),
    value("lora_dropout", "--lora_dropout"),
    takes_list(value("lora_target_modules", "--lora_target_modules", "none")),
    on("lora_target_linear", "--lora_target_modules=all-linear"),
    takes_list(value("lora_modules_to_save", "--lora_modules_to_save", "none")),
    bool_flag("use_rslora peft_use_rslora", "--use_rslora"),
    on("load_in_4bit", "--load_in_4bit"),
    bool_flag("use_bnb_nested_quant bnb_4bit_use_double_quant", "--use_bnb_nested_quant"),
    value("bnb_4bit_quant_type", "--bnb_4bit_quant_type", "none"),

    bool_flag("do_train", "--do_train"),
    bool_flag("do_eval", "--do_eval"),
    value("eval_strategy evaluation_strategy", "--eval_strategy"),
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

    ignored("logging_nan_inf_filter include_num_input_tokens_seen include_tokens_per_second",
            "every step is shown and written to --metrics"),
    ignored("disable_tqdm", "the progress line is redrawn only on a terminal"),
    ignored("log_level", "\"log_level\" in ds_config.json sets how much is printed"),
    ignored("log_level_replica log_on_each_node save_on_each_node",
            "rank 0 logs and saves for all machines"),
    ignored("skip_memory_metrics", "--metrics has the peak memory"),
    takes_list(ignored("debug", "a non-finite gradient is reported with its block and parameter")),
    ignored("dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers "
            "dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order",
            "a thread of each rank prepares the next batch"),
    ignored("preprocessing_num_workers streaming use_fast_tokenizer",
            "one rank of a machine makes the tokens, on all of its cores, and keeps them in "
            "--token-cache"),
    ignored("bnb_4bit_quant_storage", "the bytes are the same in any type, and ranks share them"),
    ignored("low_cpu_mem_usage", "a rank reads only its own part of the weights"),
    ignored("remove_unused_columns", "fields that no flag names are not read"),
    takes_list(ignored("label_names", "the labels are the tokens themselves")),
    ignored("length_column_name", kOrder),
    ignored("use_cache past_index", "training has no cache of keys and values"),
    ignored("attn_implementation use_flash_attention_2 use_flash_attn",
            "the fastest one for the device is used"),
    ignored("model_type", "config.json sets it"),
    ignored("cache_dir token use_auth_token", "nothing is downloaded"),
    ignored("save_safetensors", "models are always saved as safetensors"),
    ignored("enable_jit_checkpoint", "SIGTERM always saves the model"),
    ignored("ignore_data_skip",
            "a resumed run starts at its next sample, and reads none before it"),
    ignored("restore_callback_states_from_checkpoint", "a resumed run restores all its counters"),
    ignored("prediction_loss_only eval_accumulation_steps eval_do_concat_batches "
            "eval_use_gather_object batch_eval_metrics",
            kLossOnly),
    takes_list(ignored("include_for_metrics", kLossOnly)),
    ignored("include_inputs_for_metrics use_legacy_prediction_loop", kLossOnly),
    ignored("jit_mode_eval torch_compile torch_compile_backend torch_compile_mode "
            "torchdynamo use_ipex use_liger_kernel liger_kernel_config",
            "kernels are compiled with Zeroth, not at run time"),
    ignored("torch_empty_cache_steps", "free memory is reused"),
    ignored("gradient_checkpointing_kwargs",
            "there is one kind of recompute; --gradient-checkpointing=N applies it to every N-th "
            "block"),
    ignored("torch_dtype dtype",
            "the stored precision of weights does not matter: use --bf16 or --fp16"),
    ignored("fp16_opt_level fp16_backend half_precision_backend",
            "fp16 has fp32 masters and a loss scale"),
    ignored("tf32", "fp32 matrix products stay in fp32; --bf16 is the fast precision"),
    ignored("ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers "
            "ddp_static_graph ddp_backend xpu_backend",
            "zeroth chooses the communication backend"),
    ignored("fsdp_config fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap",
            "it configures --fsdp"),
    ignored("mp_parameters", "it is for SageMaker's launcher"),
    ignored("ray_scope", "it is for a search of hyper-parameters"),
    ignored("tpu_num_cores tpu_metrics_debug", kOtherHardware),
    ignored("run_name project trackio_space_id trackio_bucket_id trackio_static_space_id",
            "no service is reached from here"),
    ignored("hub_model_id hub_strategy hub_token hub_private_repo hub_always_push "
            "hub_revision push_to_hub_model_id push_to_hub_organization push_to_hub_token",
            kHub),

    refused("dataset_name dataset_config_name", kOwnFiles),
    request("tokenizer_name config_name", "", "tokenizer and config.json are read from --model, "),
    refused("config_overrides", "change config.json in --model"),
    refused("model_revision", kOwnFiles, "main"),
    refused("trust_remote_code", "Python code is not run; the README lists the supported models"),
    refused("push_to_hub", kHub),
    request("validation_split_percentage", "",
            "--data is not split: use a separate file, --eval-data", "5"),
    request("keep_linebreaks", kNo, "a text is used as it is in the file", "true"),
    request("optim", "", kOptimizer,  // with the names of kOptimizers
            "adamw_torch,adamw_torch_fused,adamw_apex_fused,adamw_torch_xla,adamw_torch_npu_fused,"
            "adamw_hf,adamw"),
    refused("optim_args", kOptimizer),
    takes_list(refused("optim_target_modules", kOptimizer)),
    refused("adafactor", kOptimizer),
    request("average_tokens_across_devices", kNo,
            "the loss is the mean over the tokens of all ranks, of which there are ", "true"),
    refused("label_smoothing_factor", "the loss is plain cross-entropy"),
    refused("neftune_noise_alpha", "noisy embeddings are not implemented"),
    request("train_sampling_strategy", "random,sequential,group_by_length", kOrder, "none"),
    refused("auto_find_batch_size", "the out-of-memory error names what fits"),
    request("data_seed", "", "--seed also seeds the data, and is ", "none"),
    refused("do_predict", "finetune only trains and evaluates"),
    request("fp16_full_eval bf16_full_eval", kYes,
            "an evaluation has the precision of the training, which is "),
    refused("use_mps_device", kOtherHardware),
    refused("fsdp", kShards, "false,none,no,"),
    refused("sharded_ddp", kShards),
    refused("accelerator_config", "--micro-batch and --accumulation set how batches are split"),
    refused("parallelism_config", kShards),
    refused("packing_strategy",
            "--packing keeps samples whole; --long-text chunk joins texts and cuts them", "bfd"),
    refused("padding_free", "--packing leaves hardly any padding"),
    refused("config", "a .json file of flags must be the only argument: finetune FILE.json"),
    refused("lora_task_type", "only causal language models are trained", "causal_lm,none"),
    takes_list(refused("lora_target_parameters",
                       "an adapter is one of a whole module: name it in --lora_target_modules")),
    refused("use_dora peft_use_dora", kDora),
    refused("load_in_8bit", kQuantized),
});

constexpr HfOptimizer kOptimizers[] = {{"sgd", "SGD"},
                                       {"adagrad", "Adagrad"},
                                       {"lion_32bit", "Lion"},
                                       {"paged_lion_32bit", "Lion", true},
                                       {"paged_adamw", "AdamW", true},
                                       {"paged_adamw_32bit", "AdamW", true},
                                       {"adamw_8bit", "AdamW8bit"},
                                       {"adamw_bnb_8bit", "AdamW8bit"},
                                       {"paged_adamw_8bit", "AdamW8bit", true}};

// Returns the names, separated by commas.
std::string optimizer_names() {
  std::string names;
  for (const HfOptimizer& optimizer : kOptimizers) {
    names += fmt::format("{}{}", names.empty() ? "" : ",", optimizer.name);
  }
  return names;
}

std::vector<HfFlag> split_rows() {
  static const std::string kNames = optimizer_names();
  std::vector<HfFlag> flags;
  for (HfFlag flag : kRows) {
    if (flag.name == "optim") flag.target = kNames;
    for (std::string_view names = flag.name; !names.empty(); flags.push_back(flag)) {
      flag.name = next_field(names, ' ');
    }
  }
  return flags;
}

}  // namespace

std::string HfRequest::refusal() const {
  return fmt::format("{}{}{}: not supported: {}", typed, value.empty() ? "" : " ", shortened(value),
                     flag->text);
}

bool equals_ignoring_case(std::string_view left, std::string_view right) {
  return left.size() == right.size() && ::strncasecmp(left.data(), right.data(), left.size()) == 0;
}

const HfOptimizer* find_hf_optimizer(std::string_view name) {
  const auto* const found = std::ranges::find_if(kOptimizers, [&](const HfOptimizer& optimizer) {
    return equals_ignoring_case(name, optimizer.name);
  });
  return found == std::end(kOptimizers) ? nullptr : found;
}

std::span<const HfFlag> hf_flags() {
  static const std::vector<HfFlag> flags = split_rows();
  return flags;
}

}  // namespace zeroth::trainer
