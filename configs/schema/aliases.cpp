#include "configs/schema/keys.h"

namespace zeroth::configs {

const std::vector<Alias>& aliases() {
  using enum Alias::Kind;
  static const std::vector<Alias> all = {
      {"bfloat16", "bf16", kOldName},
      {"allgather_size", "zero_optimization.allgather_bucket_size", kOldName},
      {"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"},
      {"zero_optimization.param_persistence_threshold",
       "zero_optimization.stage3_param_persistence_threshold"},
      {"zero_optimization.model_persistence_threshold",
       "zero_optimization.stage3_model_persistence_threshold"},
      {"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters"},
      {"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance"},
      {"zero_optimization.gather_16bit_weights_on_model_save",
       "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
      {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
       "zero_optimization.stage3_gather_16bit_weights_on_model_save", kOldName},
      {"zero_optimization.module_granularity_threshold",
       "zero_optimization.stage3_module_granularity_threshold"},
      {"zero_optimization.use_all_reduce_for_fetch_params",
       "zero_optimization.stage3_use_all_reduce_for_fetch_params"},
      {"zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential"},
      {"aio.thread_count", "aio.intra_op_parallelism", kOldName},
      {"zero_optimization.cpu_offload", "zero_optimization.offload_optimizer", kCpuDevice},
      {"zero_optimization.cpu_offload_param", "zero_optimization.offload_param", kCpuDevice},
      {"zero_optimization.cpu_offload_params", "zero_optimization.offload_param", kCpuDevice},
  };
  return all;
}

}  // namespace zeroth::configs
