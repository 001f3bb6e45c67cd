// The real program on the simulated GPU.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/trainer/workbench.h"

namespace zeroth::simulated::finetune_test {
namespace {

using trainer::Workbench;

Workbench::Result finetune(const Workbench& bench, const std::string& accelerator,
                           const std::string& arguments) {
  auto result = bench.shell(fmt::format(
      "DS_ACCELERATOR={} '{}/finetune' --data train.bin --seq-len 16 --metrics {}.jsonl "
      "--deepspeed ds.json {}",
      accelerator, ZEROTH_SIMULATED_DIR, accelerator, arguments));
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  return result;
}

}  // namespace

TEST_CASE("finetune with everything in files takes a GPU to the losses of the CPU") {
  const Workbench bench;
  bench.write("ds.json", R"({
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
    "zero_optimization": {
      "stage": 3, "stage3_param_persistence_threshold": 0, "sub_group_size": 4096,
      "offload_optimizer": {"device": "nvme", "nvme_path": "swap"},
      "offload_param": {"device": "nvme", "nvme_path": "swap", "max_in_cpu": 0}},
    "activation_checkpointing": {"cpu_checkpointing": true}})");
  const std::string training = "--model model --gradient-checkpointing --output out_";
  finetune(bench, "cpu", training + "cpu --steps 6");
  const auto expected = trainer::losses(bench.steps("cpu.jsonl"));
  REQUIRE(expected.size() == 6);
  const auto result = finetune(bench, "cuda", training + "cuda --steps 6");
  CHECK(trainer::has(result.out, "1 on cuda:0"));
  CHECK(trainer::has(result.out, "pinned host memory"));
  const auto found = trainer::losses(bench.steps("cuda.jsonl"));
  REQUIRE(found.size() == expected.size());
  for (size_t step = 0; step < expected.size(); ++step) {
    CHECK(found[step] == doctest::Approx(expected[step]).epsilon(2e-5));
  }
  finetune(bench, "cpu", "--model out_cuda --eval-only");
  finetune(bench, "cuda", "--model out_cuda --eval-only");
  CHECK(bench.evaluations("cuda.jsonl").back().at("eval_loss").get<double>() ==
        doctest::Approx(bench.evaluations("cpu.jsonl").back().at("eval_loss").get<double>())
            .epsilon(2e-5));
  CHECK(std::filesystem::is_empty(bench / "swap"));
}

}  // namespace zeroth::simulated::finetune_test
