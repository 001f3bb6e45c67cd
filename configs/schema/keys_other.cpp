#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

constexpr std::string_view kEnabled = "enabled = false";
constexpr std::string_view kOwnFiles = "every rank writes files of its own, at the same time";

std::vector<Key> parallel_rows() {
  return {
      section("pipeline", "split of the model's blocks over ranks"),
      refused("pipeline.stages", "\"auto\"", "not supported yet: every rank holds every block",
              "1 | null"),
      no_effect("pipeline.partition", kString, "\"best\"", "there is one stage"),
      no_effect("pipeline.seed_layers", kBool, "false", "there is one stage"),
      no_effect("pipeline.activation_checkpoint_interval", kInteger, "0",
                "--gradient-checkpointing and activation_checkpointing switch recompute on"),
      no_effect("pipeline.pipe_partitioned", kBool, "true", "there is one stage"),
      no_effect("pipeline.grad_partitioned", kBool, "true", "there is one stage"),
      refused("sequence_parallel_size", "1", "not supported yet", "null"),
      refused("data_parallel_size", "null", "all ranks are data-parallel: give none"),
      refused_section("tensor_parallel", "autotp_size = 0 | 1",
                      "dtype tp_overlap_comm vocab_parallel_lm_head vocab_parallel_ce_backend tp "
                      "tp.tp_size tp.tp_grain_size tp.mpu tp.tp_group tensor_parallel "
                      "tensor_parallel.tp_size tensor_parallel.tp_grain_size tensor_parallel.mpu "
                      "tensor_parallel.tp_group injection_policy_tuple partition_config.* "
                      "preset_model keep_module_on_host replace_with_kernel_inject kernel_inject",
                      "not supported yet: every rank holds whole layers"),
      refused_section("expert_parallel", kEnabled, "*", "not supported yet"),
      refused("use_data_before_expert_parallelism", "false", "not supported yet"),
  };
}

std::vector<Key> service_rows() {
  return {
      section("checkpoint", "how checkpoints are written"),
      {"checkpoint.tag_validation",
       kString,
       kNoEffect,
       "\"Warn\"",
       "\"Ignore\" | \"Warn\" | \"Fail\"",
       kDefault,
       "a checkpoint is that of one step on all ranks, or none is made",
       {},
       true},
      no_effect("checkpoint.load_universal", kBool, "false",
                "every checkpoint is for any ranks and stages"),
      no_effect("checkpoint.use_node_local_storage", kBool, "false",
                "a run has one machine, and all ranks write into --output"),
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
                      "not supported yet: it changes which samples are trained; without it all "
                      "are, in shuffled order"),
      refused_section("autotuning", kEnabled, "*",
                      "not supported yet: give --micro-batch by hand, the summary tells what "
                      "memory it takes"),
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

std::vector<Key> legacy_rows() {
  constexpr std::string_view kGone = "not supported, by DeepSpeed neither";
  return {
      refused_section("elasticity", kEnabled, "*", kGone),
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

std::vector<Key> other_rows() {
  return joined({parallel_rows(), service_rows(), legacy_rows()});
}

}  // namespace zeroth::configs
