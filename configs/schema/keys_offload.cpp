#include "configs/schema/key_rows.h"

namespace zeroth::configs {
namespace {

constexpr KeyType kBool = KeyType::kBool;
constexpr KeyType kInteger = KeyType::kInteger;
constexpr KeyType kNumber = KeyType::kNumber;
constexpr KeyType kString = KeyType::kString;
constexpr std::string_view kDevices = "\"none\" | \"cpu\" | \"nvme\"";

std::vector<Key> optimizer_offload_rows() {
  return {
      section("zero_optimization.offload_optimizer",
              "where fp32 masters and optimizer states rest between updates, at every stage "
              "(DeepSpeed: not at stage 0)"),
      honoured("zero_optimization.offload_optimizer.device", kString, "\"none\"", kDevices,
               "none: where it is computed; cpu: host memory; nvme: a file, at stages 1 and 2 too "
               "(DeepSpeed: host memory there)"),
      honoured("zero_optimization.offload_optimizer.nvme_path", kString, "null", "",
               "nvme: required; the folder that receives one file per rank, made where it is "
               "missing"),
      honoured("zero_optimization.offload_optimizer.buffer_count", kInteger, "4", ">= 0",
               "nvme: tiles under way at a time; at least 1 + pipeline_read + pipeline_write"),
      honoured("zero_optimization.offload_optimizer.pin_memory", kBool, "true", "",
               "host memory that a GPU copies from or to is page-locked"),
      honoured("zero_optimization.offload_optimizer.pipeline_read", kBool, "true", "",
               "nvme: tiles are read ahead of their update (DeepSpeed: false)"),
      honoured("zero_optimization.offload_optimizer.pipeline_write", kBool, "true", "",
               "nvme: a tile is written while the next one is updated (DeepSpeed: false)"),
      no_effect("zero_optimization.offload_optimizer.fast_init", kBool, "false",
                "what was never written is zero: a fresh file needs no first write"),
      honoured("zero_optimization.offload_optimizer.ratio", kNumber, "1.0", "0..1",
               "share of the elements that rests at device, at every stage; the first units in "
               "forward order, as far as it leaves them, stay where the model computes and are "
               "updated there"),
      {"zero_optimization.offload_optimizer.step", kString, KeyState::kHonoured, "\"auto\"",
       "\"auto\" | \"cpu\" | \"gpu\"",
       "both are timed when training starts, the faster one is taken",
       "not DeepSpeed's: who computes the update of what rests elsewhere; in a run on the CPU "
       "always the CPU"},
      refused("zero_optimization.offload_optimizer.super_offload", "false",
              "not supported: the update runs beside the next forward at every stage without it"),
      no_effect("zero_optimization.offload_optimizer.cpuadam_cores_perc", kNumber, "0.8",
                "concerns super_offload; the update uses all cores of a rank"),
  };
}

std::vector<Key> parameter_offload_rows() {
  return {
      section("zero_optimization.offload_param",
              "where shards of parameters rest between uses; stage 3 only"),
      honoured("zero_optimization.offload_param.device", kString, "\"none\"", kDevices,
               "none: where it is computed; cpu: host memory; nvme: a file; below stage 3 an error "
               "(DeepSpeed: ignored)"),
      honoured("zero_optimization.offload_param.nvme_path", kString, "null", "",
               "nvme: required; the folder that receives one file per rank, made where it is "
               "missing"),
      honoured("zero_optimization.offload_param.buffer_count", kInteger, "5", ">= 0",
               "nvme: shards under way at a time; at least 2"),
      honoured("zero_optimization.offload_param.buffer_size", kInteger, "100000000", ">= 0",
               "nvme: elements of a buffer; at least those of the largest shard"),
      honoured("zero_optimization.offload_param.max_in_cpu", kInteger, "1000000000", ">= 0",
               "nvme: each rank keeps this many elements in host memory, whole units in forward "
               "order"),
      honoured("zero_optimization.offload_param.pin_memory", kBool, "true", "",
               "host memory that a GPU copies from or to is page-locked"),
  };
}

std::vector<Key> file_rows() {
  return {
      section("aio", "how files of offload to nvme are read and written"),
      honoured("aio.block_size", kInteger, "1048576", "4096..1073741824",
               "bytes of the pieces into which a transfer is cut; a multiple of 4096"),
      honoured("aio.queue_depth", kInteger, "32", "1..32767",
               "pieces under way at a time (DeepSpeed: 8)"),
      honoured("aio.intra_op_parallelism", kInteger, "8", "1..1024",
               "threads, each with one piece under way, where io_uring is refused (DeepSpeed: 1)"),
      no_effect("aio.single_submit", kBool, "false",
                "pieces that are ready go to the kernel together"),
      no_effect("aio.overlap_events", kBool, "true",
                "handing pieces over never waits for what is under way"),
      refused("aio.use_gds", "false",
              "not supported yet: files are read and written through host memory"),
  };
}

}  // namespace

std::vector<Key> offload_rows() {
  std::vector<Key> rows;
  for (const auto& part : {optimizer_offload_rows(), parameter_offload_rows(), file_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace zeroth::configs
