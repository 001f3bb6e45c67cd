#include "configs/schema/key_rows.h"
#include "tests/configs/support.h"

namespace zeroth::configs::keys_zero_test {

TEST_CASE("zero_optimization keys are honoured, idle or refused as the table says") {
  for (const ConfigKey& key : zero_rows()) check_row(key);
}

TEST_CASE("what would change the training is refused by its key") {
  CHECK(complaints_of(nested("zero_optimization.zenflow", R"({"topk_ratio": 0.1})"))
            .starts_with("zero_optimization.zenflow: refused: not supported yet: it delays"));
  CHECK(complaints_of(nested("zero_optimization.zero_quantized_weights", "true"))
            .starts_with("zero_optimization.zero_quantized_weights: true is refused"));
}

TEST_CASE("keys of offload and of its files are honoured, idle or refused as the table says") {
  for (const ConfigKey& key : offload_rows()) check_row(key);
}

TEST_CASE("an offload value of the wrong kind or range is an error with its path") {
  const std::vector<std::pair<const char*, std::pair<const char*, const char*>>> cases = {
      {"zero_optimization.offload_optimizer.device",
       {"\"disk\"", "expected \"none\" | \"cpu\" | \"nvme\", found the string \"disk\""}},
      {"zero_optimization.offload_optimizer.ratio",
       {"1.5", "expected a number in 0..1, found 1.5"}},
      {"zero_optimization.offload_optimizer.ratio",
       {"-0.1", "expected a number in 0..1, found -0.1"}},
      {"zero_optimization.offload_optimizer.buffer_count",
       {"-1", "expected an integer >= 0, found -1"}},
      {"zero_optimization.offload_optimizer.pin_memory", {"1", "expected true or false, found 1"}},
      {"zero_optimization.offload_optimizer.step",
       {"\"host\"", "expected \"auto\" | \"cpu\" | \"gpu\", found the string \"host\""}},
      {"zero_optimization.offload_param.buffer_size", {"1.5", "expected an integer, found 1.5"}},
      {"zero_optimization.offload_param.nvme_path", {"7", "expected a string, found 7"}},
      {"aio.queue_depth", {"0", "expected an integer in 1..32767, found 0"}},
      {"aio.block_size", {"512", "expected an integer in 4096..1073741824, found 512"}},
      {"aio.intra_op_parallelism", {"0", "expected an integer in 1..1024, found 0"}},
  };
  for (const auto& [path, value] : cases) {
    CHECK(complaints_of(nested(path, value.first)) == fmt::format("{}: {}", path, value.second));
  }
}

TEST_CASE("idle keys of offload say why they have no effect") {
  const Resolved resolved = resolve_text(R"({"zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "cpu", "fast_init": true, "cpuadam_cores_perc": 0.5}}})");
  CHECK(has_note(resolved,
                 "zero_optimization.offload_optimizer.fast_init true has no effect: a new file "
                 "reads as zeros"));
  CHECK(has_note(resolved, "offload_optimizer.cpuadam_cores_perc 0.5 has no effect: "));
  CHECK(warnings_of(resolved).empty());
}

TEST_CASE("what offload cannot do is refused with the reason, also while it is off") {
  CHECK(complaints_of(nested("zero_optimization.offload_optimizer.super_offload", "true")) ==
        "zero_optimization.offload_optimizer.super_offload: true is refused: not supported: the "
        "update overlaps with the next forward at every stage without it; accepted: false");
  CHECK(complaints_of(nested("aio.use_gds", "true")) ==
        "aio.use_gds: true is refused: not supported yet: files are read and written through host "
        "memory; accepted: false");
}

}  // namespace zeroth::configs::keys_zero_test
