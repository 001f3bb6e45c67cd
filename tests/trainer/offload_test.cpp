// Real runs whose state rests away from the device: what they compute, and what they hold.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "tests/trainer/offload_bench.h"

namespace zeroth::trainer::offload_test {
namespace {

constexpr const char* kTrain =
    "--model model --data train.bin --seq-len 16 --global-batch 8 --micro-batch 2 --lr 1e-3 ";

// The kind of file that DeepSpeed's documentation shows; `offload` as its two sections.
std::string documented(const std::string& offload) {
  return R"({
    "train_batch_size": 256,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {
      "lr": 3e-5, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
    "scheduler": {"type": "WarmupLR", "params": {
      "warmup_min_lr": 0, "warmup_max_lr": 3e-5, "warmup_num_steps": 500}},
    "gradient_clipping": 1.0,
    "steps_per_print": 10,
    "wall_clock_breakdown": false,
    "zero_optimization": {
      "stage": 3,)" +
         offload + R"(
      "contiguous_gradients": true,
      "overlap_comm": true,
      "reduce_bucket_size": 1e7,
      "sub_group_size": 1e9,
      "stage3_max_live_parameters": 1e9,
      "stage3_max_reuse_distance": 1e9,
      "stage3_prefetch_bucket_size": 1e7,
      "stage3_param_persistence_threshold": 1e5,
      "stage3_gather_16bit_weights_on_model_save": true}})";
}

// Of a run on two ranks that trains, evaluates and saves on the way.
struct Trained {
  std::vector<double> losses;
  std::vector<double> eval_losses;
  std::string saved;  // model.safetensors
  std::string saved_on_the_way;
};

Trained train(const Workbench& bench, const std::string& config) {
  const auto result = bench.zeroth(
      2, fmt::format("{} --steps 8 --deepspeed {} --metrics m.jsonl --overwrite --output out "
                     "--eval-data train.bin --eval-every 4 --save-every 4",
                     kTrain, config));
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  Trained trained{.losses = losses(bench.steps("m.jsonl")),
                  .eval_losses = {},
                  .saved = bench.read("out/model.safetensors"),
                  .saved_on_the_way = bench.read("out/checkpoints/step-4/model.safetensors")};
  for (const auto& row : bench.evaluations("m.jsonl")) {
    trained.eval_losses.push_back(row.at("eval_loss").get<double>());
  }
  return trained;
}

// Open files and resident KiB of each rank, as the test's shell wrote them.
struct Held {
  int files = 0;
  int rss_kib = 0;
};

std::vector<Held> read_held(const std::string& text) {
  std::vector<Held> held;
  std::istringstream lines(text);
  for (Held one; lines >> one.files >> one.rss_kib;) held.push_back(one);
  return held;
}

}  // namespace

TEST_CASE("a run evaluates and saves the same bits wherever its states and parameters rest") {
  const OffloadBench bench;
  bench.write("device.json", R"({"bf16": {"enabled": true}, "zero_optimization": {
      "stage": 3, "stage3_param_persistence_threshold": 0}})");
  bench.write("cpu.json", R"({"bf16": {"enabled": true}, "zero_optimization": {
      "stage": 3, "stage3_param_persistence_threshold": 0,
      "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}})");
  const Trained device = train(bench, "device.json");
  REQUIRE(device.eval_losses.size() == 2);
  for (const std::string config : {"cpu.json", "nvme.json"}) {
    CAPTURE(config);
    const Trained away = train(bench, config);
    CHECK(away.losses == device.losses);
    CHECK(away.eval_losses == device.eval_losses);
    CHECK((away.saved == device.saved));  // without a print of both
    CHECK((away.saved_on_the_way == device.saved_on_the_way));
  }
  CHECK(bench.is_clean());
  const auto again = bench.zeroth(
      2,
      "--model out --eval-only --data train.bin --seq-len 16 --deepspeed nvme.json --metrics "
      "m.jsonl");
  REQUIRE_MESSAGE(again.code == 0, again.out << again.err);
  CHECK(bench.evaluations("m.jsonl").back()["eval_loss"].get<double>() ==
        doctest::Approx(device.eval_losses.back()).epsilon(1e-6));
  CHECK(bench.is_clean());
}

TEST_CASE("evaluation alone leaves the place of masters and optimizer states alone") {
  const Workbench bench;
  const auto evaluated = [&](const std::string& precision, const std::string& zero) {
    bench.write("ds.json",
                fmt::format(R"({{{}"zero_optimization": {{"stage": 2{}}}}})", precision, zero));
    const auto result = bench.zeroth(
        2,
        "--model model --eval-only --data train.bin --seq-len 16 --deepspeed ds.json --metrics "
        "m.jsonl");
    REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
    CHECK_FALSE(has(result.out, "masters"));
    CHECK_FALSE(has(result.out, "optimizer states"));
    CHECK_FALSE(has(result.out, "/proc/sys/x"));
    return bench.evaluations("m.jsonl").back().at("eval_loss").get<double>();
  };
  for (const std::string precision : {"", R"("bf16": {"enabled": true}, )"}) {
    const double expected = evaluated(precision, "");
    CHECK(evaluated(precision, R"(, "offload_optimizer": {"device": "cpu"})") == expected);
    CHECK(evaluated(precision, R"(, "offload_optimizer": {
                    "device": "nvme", "nvme_path": "/proc/sys/x"})") == expected);
  }
}

TEST_CASE("a file of the kind in DeepSpeed's documentation runs as it is") {
  const Workbench bench;
  bench.write("ds_config.json", documented(R"(
      "offload_optimizer": {"device": "cpu", "pin_memory": true},
      "offload_param": {"device": "cpu", "pin_memory": true},)"));
  bench.write("without.json", documented(""));
  std::vector<double> found;
  for (const char* config : {"ds_config.json", "without.json"}) {
    const auto result = bench.zeroth(
        2, fmt::format("--model model --data train.bin --seq-len 16 --steps 3 --deepspeed {} "
                       "--metrics m.jsonl",
                       config));
    REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
    CHECK(has(result.out, "256 samples = 32 per micro-batch x 4 accumulated x 2 ranks"));
    if (found.empty()) {
      found = losses(bench.steps("m.jsonl"));
      CHECK(found.size() == 3);
    } else {
      CHECK(losses(bench.steps("m.jsonl")) == found);
    }
  }
}

TEST_CASE("two runs at a time rest in one folder and do not meet") {
  const OffloadBench bench;
  const std::string rest = fmt::format("{} --steps 40 --deepspeed nvme.json --metrics", kTrain);
  const auto result =
      bench.while_running("--global-batch 8 --micro-batch 2 --lr 1e-3 --steps 40",
                          fmt::format("'{}/zeroth' --num_gpus 2 finetune {} other.jsonl; other=$?\n"
                                      "wait $job && exit $other",
                                      ZEROTH_BIN_DIR, rest));
  REQUIRE_MESSAGE(result.code == 0, result.out << result.err);
  CHECK(losses(bench.steps("m.jsonl")).size() == 40);
  CHECK(losses(bench.steps("m.jsonl")) == losses(bench.steps("other.jsonl")));
  CHECK(bench.is_clean());
}

TEST_CASE("open files and resident memory stay as they are over a thousand steps on NVMe") {
  const OffloadBench bench;
  const auto result = bench.while_running(
      "--global-batch 4 --micro-batch 2 --steps 1000000",
      "files() {  # without one that is open for a moment, such as a page of /proc\n"
      "  for i in 1 2 3 4 5 6 7 8; do ls /proc/$1/fd | wc -l; done | sort -n | head -n 1\n"
      "}\n"
      "hold() {\n"
      "  for one in $(rank 0) $(rank 1); do\n"
      "    echo $(files $one) $(awk '/VmRSS/ {print $2}' /proc/$one/status)\n"
      "  done\n"
      "}\n"
      "steps 100; hold > before\n"
      "steps 1100; hold > after\n"
      "kill -TERM $job; wait $job",
      std::chrono::minutes(8));
  REQUIRE_MESSAGE(result.code == 143, result.out << result.err);
  const auto before = read_held(bench.read("before"));
  const auto after = read_held(bench.read("after"));
  REQUIRE(before.size() == 2);
  REQUIRE(after.size() == 2);
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(before[rank].files > 5);
    CHECK(after[rank].files == before[rank].files);
#if !defined(__SANITIZE_ADDRESS__)                             // which keeps what is freed
    CHECK(after[rank].rss_kib < before[rank].rss_kib + 1024);  // a KiB a step would be a leak
#endif
  }
  CHECK(bench.is_clean());
}

}  // namespace zeroth::trainer::offload_test
