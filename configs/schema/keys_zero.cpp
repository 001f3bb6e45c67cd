#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

// Returns the field of buffer_size, which is null for as many elements as the model needs.
constexpr Field buffer_size() {
  Field elements = field<&OffloadParamConfig::buffer_size_elements>();
  elements.get = [](const Config& config) {
    const int64_t size = config.zero.offload_param.buffer_size_elements;
    return size == kBufferSizeAsNeeded ? nlohmann::ordered_json() : nlohmann::ordered_json(size);
  };
  return elements;
}

std::vector<ConfigKey> honored_rows() {
  return {
      section("zero_optimization",
              "what is sharded; true and false are accepted as stage 1 and stage 0"),
      honored("zero_optimization.stage", field<&ZeroConfig::stage>(), "0", "0..3",
              "0: nothing sharded; 1: optimizer state; 2: and gradients; 3: and parameters",
              {.auto_value = ""}),
      honored("zero_optimization.reduce_bucket_size", field<&ZeroConfig::reduce_bucket_elements>(),
              "500000000", "> 0",
              "all reductions in flight hold at most this many elements, or one block",
              {.auto_value = "hidden size squared"}),
      honored("zero_optimization.allgather_bucket_size",
              field<&ZeroConfig::allgather_bucket_elements>(), "500000000", "> 0",
              "stages 1 and 2: updated parameters of whole blocks that fit in this many elements "
              "are gathered ahead of use"),
      honored("zero_optimization.overlap_comm", field<&ZeroConfig::overlap_comm>(), "true", "",
              "gathers and reductions overlap with compute; results are the same, so it is on at "
              "every stage (DeepSpeed: only at stage 3)"),
      honored("zero_optimization.overlap_step", field<&ZeroConfig::overlap_step>(), "false", "",
              "not in DeepSpeed: a GPU updates what is not offloaded during the next forward pass, "
              "each block before its first use; results are the same; no effect on the CPU"),
      honored(
          "zero_optimization.stage3_prefetch_bucket_size",
          field<&ZeroConfig::prefetch_bucket_elements>(), "50000000", ">= 0",
          "stage 3: as many whole blocks as fit are gathered ahead of use, at least one unless 0",
          {.auto_value = "0.9 * hidden size squared; below stage 3 the default"}),
      honored("zero_optimization.stage3_param_persistence_threshold",
              field<&ZeroConfig::param_persistence_threshold_elements>(), "100000", ">= 0",
              "stage 3: units of at most this many elements stay whole on every rank",
              {.auto_value = "10 * hidden size; below stage 3 the default"}),
      honored("zero_optimization.stage3_max_live_parameters",
              field<&ZeroConfig::max_live_elements>(), "1000000000", ">= 0",
              "stage 3: at most this many gathered elements at a time; must hold two neighboring "
              "blocks; 0: only the block in use"),
      honored("zero_optimization.zero_hpz_partition_size",
              field_with_special<&ZeroConfig::hpz_partition_size, 0, 1>(), "1", ">= 0",
              "stage 3: number of neighboring data ranks that together hold all parameters and "
              "gather only from each other, with one refresh from the other ranks after each "
              "update; 0, 1: all ranks"),
      honored(
          "zero_optimization.sub_group_size",
          field_with_special<&ZeroConfig::sub_group_size_elements, 0, 1'000'000'000>(),
          "1000000000", ">= 0",
          "the optimizer updates a shard in chunks of at most this many elements; 0: the default"),
      honored("zero_optimization.reduce_scatter", field<&ZeroConfig::reduce_scatter>(), "true", "",
              "stages 1, 2, 3: a rank receives only its shard of a sum; false: all of it"),
      honored("zero_optimization.ignore_unused_parameters",
              field<&ZeroConfig::ignore_unused_parameters>(), "true", "",
              "false: a trainable parameter without a gradient is an error"),
      honored("zero_optimization.stage3_gather_16bit_weights_on_model_save",
              field<&ZeroConfig::gather_16bit_weights_on_model_save>(), "false", "",
              "a saved model contains the full weights; at stage 3 even if false"),
  };
}

std::vector<ConfigKey> no_effect_rows() {
  return {
      no_effect("zero_optimization.stage3_max_reuse_distance", kInteger, "1000000000",
                "the order of use is known; stage3_max_live_parameters alone decides"),
      no_effect("zero_optimization.stage3_model_persistence_threshold", kInteger,
                "9223372036854775807", "stage3_param_persistence_threshold alone decides"),
      no_effect("zero_optimization.stage3_module_granularity_threshold", kInteger, "0",
                "a block is always gathered as one"),
      no_effect("zero_optimization.stage3_use_all_reduce_for_fetch_params", kBool, "false",
                "a gather needs no copy into buckets"),
      no_effect("zero_optimization.stage3_allgather_sequential", kBool, "false",
                "a gather needs no copy into buckets"),
      no_effect("zero_optimization.contiguous_gradients", kBool, "true",
                "gradients are always produced in one flat buffer"),
      no_effect("zero_optimization.allgather_partitions", kBool, "true",
                "each stage uses the collective that it needs; the values are the same"),
      no_effect("zero_optimization.use_multi_rank_bucket_allreduce", kBool, "true",
                "each stage uses the collective that it needs; the sums are the same"),
      no_effect("zero_optimization.round_robin_gradients", kBool, "false",
                "shards are even, and each rank moves its own"),
      no_effect("zero_optimization.compute_grad_norm", kBool, "true",
                "the norm is always computed and printed"),
      no_effect("zero_optimization.load_from_fp32_weights", kBool, "true",
                "masters are read from the model's files at their own precision"),
      no_effect("zero_optimization.parameter_alignment", kBool, "false",
                "flat buffers have their own alignment"),
      no_effect("zero_optimization.memory_efficient_linear", kBool, "true",
                "linear layers never keep a second copy of a weight"),
      no_effect("zero_optimization.override_module_apply", kBool, "true",
                "concerns Python modules"),
      no_effect("zero_optimization.pipeline_loading_checkpoint", kBool, "false",
                "each rank reads only what it needs"),
      no_effect("zero_optimization.log_trace_cache_warnings", kBool, "false",
                "the order of use is known, there is no trace"),
      no_effect("zero_optimization.enable_sanity_checks", kBool, "false",
                "invariants are always checked"),
      no_effect("zero_optimization.save_muon_momentum_buffer_in_memory", kBool, "false",
                "concerns the Muon optimizer only"),
      no_effect("zero_optimization.cpu_offload_use_pin_memory", kBool, "null",
                "deprecated: use pin_memory in offload_optimizer and offload_param"),
      no_effect("zero_optimization.leaf_module", kSection, "null",
                "a block is always gathered as one"),
      no_effect("zero_optimization.leaf_module.classes", kList, "[]", "concerns Python"),
      no_effect("zero_optimization.leaf_module.names", kList, "[]", "concerns Python"),
      no_effect("zero_optimization.leaf_module.name_suffixes", kList, "[]", "concerns Python"),
  };
}

std::vector<ConfigKey> refused_rows() {
  return {
      refused_section(
          "zero_optimization.zenflow", "",
          "topk_ratio select_strategy select_interval update_interval overlap_step offload "
          "auto_ratio full_warm_up_rounds pt_reserved_cores_perc steps_per_epoch",
          "not supported yet: it delays updates, which changes the training"),
      refused("zero_optimization.elastic_checkpoint", "false", "not supported, as in DeepSpeed"),
      refused("zero_optimization.legacy_stage1", "false", "not supported, as in DeepSpeed"),
      refused("zero_optimization.zero_quantized_weights", "false",
              "not supported yet: it rounds the gathered weights; set it to false to gather them "
              "unchanged"),
      refused("zero_optimization.zero_quantized_nontrainable_weights", "false",
              "not supported yet: it rounds the frozen weights; set it to false to gather them "
              "unchanged"),
      refused("zero_optimization.zero_quantized_gradients", "false",
              "not supported yet: it rounds the reduced gradients; set it to false; "
              "communication_data_type sets the precision of communication"),
      refused("zero_optimization.zeropp_loco_param", "null", "not supported, as in DeepSpeed"),
      refused("zero_optimization.mics_shard_size", "-1",
              "not supported, as in DeepSpeed: use zero_hpz_partition_size instead"),
      refused("zero_optimization.mics_hierarchical_params_gather", "false",
              "not supported, as in DeepSpeed"),
  };
}

constexpr std::string_view kDevices = "\"none\" | \"cpu\" | \"nvme\"";

std::vector<ConfigKey> optimizer_offload_rows() {
  return {
      section("zero_optimization.offload_optimizer",
              "where fp32 masters and optimizer states are kept between updates, at every stage "
              "(DeepSpeed: not at stage 0)"),
      honored("zero_optimization.offload_optimizer.device",
              field<&OffloadOptimizerConfig::device>(), "\"none\"", kDevices,
              "none: compute device; cpu: host memory; nvme: a file, at stages 1 and 2 too "
              "(DeepSpeed: host memory there)"),
      honored("zero_optimization.offload_optimizer.nvme_path",
              null_if_empty<&OffloadOptimizerConfig::nvme_path>(), "null", "",
              "nvme: required; the folder for one file per rank, created if missing"),
      honored("zero_optimization.offload_optimizer.buffer_count",
              field<&OffloadOptimizerConfig::buffer_count>(), "4", ">= 0",
              "nvme: chunks in flight at a time; at least 1 + pipeline_read + pipeline_write"),
      honored("zero_optimization.offload_optimizer.pin_memory",
              field<&OffloadOptimizerConfig::pin_memory>(), "true", "",
              "host memory that a GPU copies from or to is page-locked"),
      honored("zero_optimization.offload_optimizer.pipeline_read",
              field<&OffloadOptimizerConfig::pipeline_read>(), "true", "",
              "nvme: chunks are read ahead of their update (DeepSpeed: false)"),
      honored("zero_optimization.offload_optimizer.pipeline_write",
              field<&OffloadOptimizerConfig::pipeline_write>(), "true", "",
              "nvme: a chunk is written while the next one is updated (DeepSpeed: false)"),
      no_effect("zero_optimization.offload_optimizer.fast_init", kBool, "false",
                "a new file reads as zeros and needs no first write"),
      honored("zero_optimization.offload_optimizer.ratio", field<&OffloadOptimizerConfig::ratio>(),
              "1.0", "0..1",
              "fraction of the elements that is offloaded, at every stage; the remaining units, "
              "the first ones in forward order, stay on the compute device and are updated there"),
      honored("zero_optimization.offload_optimizer.step", field<&OffloadOptimizerConfig::step>(),
              "\"auto\"", "\"auto\" | \"cpu\" | \"gpu\"",
              "not in DeepSpeed: where the update of what is offloaded is computed; in a run on "
              "the CPU always the CPU",
              {.auto_value = "both are timed when training starts, and the faster one is used"}),
      refused("zero_optimization.offload_optimizer.super_offload", "false",
              "not supported: the update overlaps with the next forward at every stage without it"),
      no_effect("zero_optimization.offload_optimizer.cpuadam_cores_perc", kNumber, "0.8",
                "concerns super_offload; the update uses all cores of a rank"),
  };
}

std::vector<ConfigKey> parameter_offload_rows() {
  return {
      section("zero_optimization.offload_param",
              "where shards of parameters are kept between uses; no effect below stage 3, as in "
              "DeepSpeed"),
      honored("zero_optimization.offload_param.device", field<&OffloadParamConfig::device>(),
              "\"none\"", kDevices, "none: compute device; cpu: host memory; nvme: a file"),
      honored("zero_optimization.offload_param.nvme_path",
              null_if_empty<&OffloadParamConfig::nvme_path>(), "null", "",
              "nvme: required; the folder for one file per rank, created if missing"),
      honored("zero_optimization.offload_param.buffer_count",
              field<&OffloadParamConfig::buffer_count>(), "5", ">= 0",
              "nvme: shards in flight at a time; at least 2"),
      honored("zero_optimization.offload_param.buffer_size", buffer_size(), "null", ">= 0",
              "nvme: elements of a buffer; at least those of the largest shard; null: exactly as "
              "many (DeepSpeed: 100000000)",
              {.auto_value = "the largest shard"}),
      honored(
          "zero_optimization.offload_param.max_in_cpu",
          field<&OffloadParamConfig::max_in_cpu_elements>(), "1000000000", ">= 0",
          "nvme: each rank keeps this many elements in host memory, whole units in forward order"),
      honored("zero_optimization.offload_param.pin_memory",
              field<&OffloadParamConfig::pin_memory>(), "true", "",
              "host memory that a GPU copies from or to is page-locked"),
  };
}

std::vector<ConfigKey> file_rows() {
  return {
      section("aio", "how files of offload to nvme are read and written"),
      honored("aio.block_size", field<&AioConfig::block_size>(), "1048576", "4096..1073741824",
              "bytes of the requests into which a transfer is split; a multiple of 4096"),
      honored("aio.queue_depth", field<&AioConfig::queue_depth>(), "32", "1..32767",
              "requests in flight at a time (DeepSpeed: 8)"),
      honored(
          "aio.intra_op_parallelism", field<&AioConfig::threads>(), "8", "1..1024",
          "threads, each with one request in flight, if io_uring is not available (DeepSpeed: 1)"),
      no_effect("aio.single_submit", kBool, "false",
                "ready requests are submitted to the kernel together"),
      no_effect("aio.overlap_events", kBool, "true",
                "submission never waits for requests in flight"),
      refused("aio.use_gds", "false",
              "not supported yet: files are read and written through host memory"),
  };
}

}  // namespace

std::vector<ConfigKey> zero_rows() {
  return joined({honored_rows(), no_effect_rows(), refused_rows()});
}

std::vector<ConfigKey> offload_rows() {
  return joined({optimizer_offload_rows(), parameter_offload_rows(), file_rows()});
}

}  // namespace zeroth::configs
