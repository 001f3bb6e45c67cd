#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

// Returns the field of autotp_size, which is 0 if no layer is split.
constexpr Field autotp_size() {
  Field number = field<&TensorParallelConfig::size>();
  number.get = [](const Config& config) -> nlohmann::ordered_json {
    return config.tensor_parallel.size > 1 ? config.tensor_parallel.size : 0;
  };
  return number;
}

// Returns the field of virtual_stages, of which 0 is null.
constexpr Field virtual_stages() {
  Field number = field<&PipelineConfig::virtual_stages>();
  number.get = [](const Config& config) -> nlohmann::ordered_json {
    if (config.pipeline.virtual_stages == 0) return nullptr;
    return config.pipeline.virtual_stages;
  };
  return number;
}

constexpr std::string_view kEnabled = "enabled = false";
constexpr std::string_view kOwnFiles = "every rank writes its own files, in parallel";

std::vector<ConfigKey> tensor_rows() {
  constexpr std::string_view kPlaces =
      "autotp_size determines which ranks split a layer: neighbors";
  constexpr std::string_view kDescribed = "the model description defines how each weight is split";
  return {
      section("tensor_parallel", "splits every layer over ranks that read the same samples"),
      honored("tensor_parallel.autotp_size", autotp_size(), "0", "0..1000000",
              "ranks that every layer is split over; must divide the number of ranks; 0 and 1: off",
              {.flag = "--tensor-parallel"}),
      honored("tensor_parallel.tp_overlap_comm", field<&TensorParallelConfig::overlap_comm>(),
              "false", "", "sums over the ranks of a layer overlap with compute"),
      no_effect("tensor_parallel.dtype", kString, "null",
                "layers are split in the precision of the run, which it must equal", kDtypes),
      section("tensor_parallel.tp",
              "DeepSpeed's alternative section for the same (also spelled tensor_parallel)"),
      no_effect("tensor_parallel.tp.tp_size", kInteger, "1",
                "only autotp_size is used; a value other than 1 must equal it", "1..1000000"),
      refused("tensor_parallel.tp.tp_grain_size", "1",
              "whole heads are distributed evenly, whatever the grain size"),
      refused("tensor_parallel.tp.mpu", "null", kPlaces),
      refused("tensor_parallel.tp.tp_group", "null", kPlaces),
      no_effect("tensor_parallel.preset_model", kString, "null", kDescribed,
                "\"llama\" | \"bloom\" | \"chatglm\" | \"mixtral\" | \"deepseek_v2\" | \"qwen2\" | "
                "\"phi3\""),
      section("tensor_parallel.partition_config", "splits of weights by patterns of their names"),
      refused("tensor_parallel.partition_config.layer_specs", "[]", kDescribed, "null"),
      no_effect("tensor_parallel.partition_config.use_default_specs", kBool, "true", kDescribed),
      no_effect("tensor_parallel.partition_config.embedding_partition_dim", kInteger, "1",
                kDescribed),
      no_effect("tensor_parallel.partition_config.lm_head_patterns", kList,
                "[\"lm_head\", \"embed_out\"]", kDescribed),
      no_effect("tensor_parallel.partition_config.strict_mode", kBool, "false",
                "a weight without a defined split is always an error"),
      refused("tensor_parallel.injection_policy_tuple", "null", kDescribed),
      no_effect("tensor_parallel.vocab_parallel_lm_head", kBool, "null", kDescribed),
      no_effect("tensor_parallel.vocab_parallel_ce_backend", kString, "\"torch\"",
                "there is only one loss for a split vocabulary"),
      refused("tensor_parallel.keep_module_on_host", "false",
              "offload_param determines which parameters are kept in host memory"),
      refused("tensor_parallel.replace_with_kernel_inject", "false",
              "not supported: there are no kernels for inference"),
  };
}

std::vector<ConfigKey> parallel_rows() {
  return {
      section("pipeline", "divides the blocks among stages, each on ranks of its own"),
      honored("pipeline.stages", field<&PipelineConfig::stages>(), "1", "1..1000000",
              "stages; stages * tensor_parallel.autotp_size must divide the number of ranks; 1: "
              "every rank holds all blocks",
              {.flag = "--pipeline-parallel"}),
      honored("pipeline.schedule", field<&PipelineConfig::schedule>(), "\"1f1b\"",
              "\"1f1b\" | \"gpipe\" | \"interleaved\" | \"zb-h1\" | \"zbv\" | \"breadth-first\"",
              "order in which the micro-batches of a step pass the blocks. 1f1b: with one stage, "
              "forward and backward of one micro-batch after the other; breadth-first: all "
              "micro-batches through a block before the next, so that a step gathers or reads each "
              "block once per pass and keeps the activations of all its micro-batches; the others "
              "need several stages. Default with several stages and offload_param: breadth-first",
              {.flag = "--pipeline-schedule"}),
      honored(
          "pipeline.virtual_stages", virtual_stages(), "null", "1..1000000",
          "chunks of neighboring blocks that each stage has; default 2 for interleaved and zbv, "
          "for breadth-first as many as there are blocks for, otherwise 1",
          {.flag = "--virtual-stages"}),
      honored("pipeline.partition", field<&PipelineConfig::partition>(), "\"best\"", "",
              "what the stages' shares of the blocks are equal in. \"parameters\": trained "
              "parameters; \"uniform\": blocks; \"time\" (and \"best\"): the time that they are "
              "measured to take; "
              "\"type:REGEX\": blocks of a type that matches"),
      no_effect("pipeline.seed_layers", kBool, "false",
                "random weights do not depend on the stages"),
      no_effect("pipeline.activation_checkpoint_interval", kInteger, "0",
                "--gradient-checkpointing and activation_checkpointing switch recompute on"),
      no_effect("pipeline.pipe_partitioned", kBool, "true",
                "with tensor_parallel, a stage sends each rank's part of an activation"),
      no_effect("pipeline.grad_partitioned", kBool, "true",
                "with tensor_parallel, a stage sends each rank's part of a gradient"),
      refused("sequence_parallel_size", "1", "not supported yet", "null"),
      refused(
          "data_parallel_size", "null",
          "it is the number of ranks / (pipeline.stages * tensor_parallel.autotp_size): leave it "
          "out"),
      refused_section("expert_parallel", kEnabled, "*", "not supported yet"),
      refused("use_data_before_expert_parallelism", "false", "not supported yet"),
  };
}

std::vector<ConfigKey> service_rows() {
  return {
      section("checkpoint", "how checkpoints are written"),
      ignoring_case(no_effect("checkpoint.tag_validation", kString, "\"Warn\"",
                              "a checkpoint always has the same step on all ranks",
                              "\"Ignore\" | \"Warn\" | \"Fail\"")),
      no_effect("checkpoint.load_universal", kBool, "false",
                "every checkpoint can be loaded on any number of ranks and at any stage"),
      no_effect("checkpoint.use_node_local_storage", kBool, "false",
                "all ranks write into --output, which the machines of a run share"),
      no_effect("checkpoint.checkpoint_serialization", kBool, "true", kOwnFiles),
      no_effect("checkpoint.parallel_write", kSection, "null", kOwnFiles),
      no_effect("checkpoint.parallel_write.pipeline_stage", kBool, "false", kOwnFiles),
      refused_section("checkpoint.writer", "",
                      "type decoupled io_buffer_size io_buffer_double data_parallel io_multiplier "
                      "show_statistics",
                      "leave it out: there is one way to write checkpoints"),
      refused("datastates_ckpt", "false", "leave it out: there is one way to write checkpoints",
              "null"),
      refused_section("data_efficiency", kEnabled, "*",
                      "not supported yet: it changes which samples are used; without it all are "
                      "used, in shuffled order"),
      refused_section(
          "autotuning", kEnabled, "*",
          "not supported yet: set --micro-batch; the summary shows the memory that it needs"),
      refused_section("compile", "deepcompile = false, enabled = false, disable = true", "*",
                      "there is no Python to compile, and Zeroth's kernels are compiled already"),
      refused_section("hybrid_engine", kEnabled,
                      "max_out_tokens inference_tp_size release_inference_cache pin_parameters "
                      "tp_gather_partition_size enable_cuda_graph",
                      "not supported: there is no generation"),
      refused_section("weight_quantization", kEnabled,
                      "num_bits q_type q_groups quantized_initialization.* post_init_quant.*",
                      "not supported yet"),
  };
}

std::vector<ConfigKey> elasticity_rows() {
  constexpr std::string_view kRange = "1..1000000";
  return {
      section("elasticity", "chooses the three batch values by the number of ranks, see above"),
      honored("elasticity.enabled", {kBool}, "false", "",
              "chooses the batch; no batch value may be given"),
      honored("elasticity.max_train_batch_size", {kInteger}, "null", "1..1000000000",
              "maximum samples per step; required if enabled", {.auto_value = ""}),
      honored("elasticity.micro_batch_sizes", {kIntegers}, "null", "1..1000000",
              "micro-batch sizes to choose from, at most 64; required if enabled",
              {.auto_value = ""}),
      honored("elasticity.min_gpus", {kInteger}, "1", kRange, "minimum number of data ranks",
              {.auto_value = ""}),
      honored("elasticity.max_gpus", {kInteger}, "10000", kRange, "maximum number of data ranks",
              {.auto_value = ""}),
      honored("elasticity.num_gpus_per_node", {kInteger}, "1", kRange,
              "version 0.2: ranks per node", {.auto_value = ""}),
      honored("elasticity.model_parallel_size", {kInteger}, "1", kRange,
              "version 0.2: must equal tensor_parallel.autotp_size and divide num_gpus_per_node",
              {.auto_value = ""}),
      no_effect("elasticity.min_time", kNumber, "0", "a run does not wait for more machines",
                ">= 0"),
      honored("elasticity.prefer_larger_batch", {kBool}, "true", "",
              "chooses the larger of batches that are valid for equally many numbers of ranks; "
              "false: the smaller"),
      honored("elasticity.ignore_non_elastic_batch_info", {kBool}, "false", "",
              "explicit batch values have no effect; false: they are an error"),
      honored("elasticity.version", {kNumber}, "0.2", "> 0",
              "0.1: counts ranks; 0.2: counts whole nodes; no other version is supported",
              {.auto_value = ""}),
  };
}

std::vector<ConfigKey> legacy_rows() {
  constexpr std::string_view kGone = "not supported, as in DeepSpeed";
  return {
      refused_section("curriculum_learning", kEnabled, "*", kGone),
      refused_section("progressive_layer_drop", kEnabled, "theta gamma", kGone),
      refused_section("eigenvalue", kEnabled, "*", kGone),
      refused_section("quantize_training", kEnabled, "*", kGone),
      refused_section("compression_training", "", "*", kGone),
      refused_section("sparse_attention", "", "*", kGone),
      refused_section("nebula", kEnabled, "*", kGone),
      refused("graph_harvesting", "false", kGone),
  };
}

}  // namespace

std::vector<ConfigKey> other_rows() {
  return joined({parallel_rows(), tensor_rows(), service_rows(), elasticity_rows(), legacy_rows()});
}

}  // namespace zeroth::configs
