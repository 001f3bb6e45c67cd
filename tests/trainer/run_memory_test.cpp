// What is foretold of activations against what training allocates.
#include "trainer/run_memory.h"

#include <ATen/record_function.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.h"
#include "base/machine/cpu.h"
#include "engine/engine.h"
#include "engine/memory/activation_probe.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "tests/support/ranks.h"
#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"
#include "trainer/batch_loader.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::run_memory_test {
namespace {

void write_model(const Workbench& bench, int64_t vocabulary) {
  bench.write("model/config.json", fmt::format(R"({{
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": {},
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
    "torch_dtype": "float32"}})",
                                               vocabulary));
}

RunPlan plan_of(const Workbench& bench, const std::string& more) {
  return make_plan(
      parse_line(fmt::format("--model {} --data {} --seq-len 64 --steps 2 {}",
                             (bench / "model").string(), (bench / "train.bin").string(), more)),
      1);
}

// With what activations take.
engine::RunMemory foretold(const RunPlan& plan) {
  return engine::with_activations(run_memory(plan, 1), measure_activations(plan));
}

// Bytes that the second step allocates at most, beside what rests from the first one.
int64_t measured(const RunPlan& plan) {
  int64_t largest = 0;
  testing::run_ranks(1, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto count = std::make_shared<engine::Allocations>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, count);
    const auto engine = engine::initialize(
        model::build_blocks(plan.spec), plan.config, mesh,
        {.weights = model::open_weights(plan.flags.model, plan.spec, plan.config.seed)});
    TrainDataLoader loader(*plan.samples.train, plan.sample_order(), plan.train_partition(0), 1);
    engine->train_batch(loader);
    count->begin();
    engine->train_batch(loader);
    largest = count->peak();
  });
  return largest;
}

// How many products of matrices it takes, backward included.
int64_t products_of_estimate(RunPlan& plan) {
  static int64_t count;
  count = 0;
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        const std::string name = call.name();
        if (name.ends_with("mm") || name.ends_with("_linear_pointwise")) ++count;
        return nullptr;
      }));
  measure_activations(plan);
  at::removeCallback(handle);
  return count;
}

double ratio(const RunPlan& plan) {
  const zero::MemoryPlan memory = foretold(plan).memory;
  return static_cast<double>(memory.activations.device + memory.saved_inputs.device) /
         static_cast<double>(measured(plan));
}

}  // namespace

TEST_CASE("activations are foretold for any micro-batch and recompute, logits in chunks included") {
  struct Case {
    int64_t vocabulary;
    int64_t micro_batch;
    const char* config;
    std::string flags;
  };
  const char* const none = "{}";
  const char* const all = R"({"activation_checkpointing": {"number_checkpoints": 100}})";
  const char* const three = R"({"activation_checkpointing": {"number_checkpoints": 3}})";
  const char* const broad = R"({"pipeline": {"schedule": "breadth-first"}})";
  const char* const broad_all = R"({"pipeline": {"schedule": "breadth-first"},
                                    "activation_checkpointing": {"number_checkpoints": 100}})";
  for (const Case& c :
       {Case{448, 1, none, ""}, Case{448, 40, none, ""}, Case{448, 40, all, ""},
        Case{448, 40, three, ""}, Case{4096, 10, none, ""}, Case{4096, 70, none, ""},
        Case{4096, 70, three, ""}, Case{448, 40, none, "--bf16"}, Case{4096, 70, three, "--bf16"},
        Case{448, 10, none, "--accumulation 4"}, Case{448, 10, broad, "--accumulation 4"},
        Case{448, 10, broad_all, "--accumulation 4"},
        Case{4096, 10, broad_all, "--accumulation 4 --bf16"}}) {
    const Workbench bench;
    write_model(bench, c.vocabulary);
    bench.write("ds.json", c.config);
    CAPTURE(c.vocabulary);
    CAPTURE(c.micro_batch);
    CAPTURE(std::string(c.config));
    CAPTURE(c.flags);
    const RunPlan plan =
        plan_of(bench, fmt::format("--micro-batch {} {} --deepspeed {}", c.micro_batch, c.flags,
                                   (bench / "ds.json").string()));
    const double found = ratio(plan);
    CHECK(found > 0.95);
    CHECK(found < 1.10);
  }
}

TEST_CASE(
    "what the estimate costs depends neither on the number of layers nor on the micro-batch") {
  const MatmulBackendGuard forced(
      "libtorch");  // whose products are operators, which can be counted
  const Workbench bench;
  write_model(bench, 448);
  RunPlan plan = plan_of(bench, "--micro-batch 1"), large = plan_of(bench, "--micro-batch 500");
  const int64_t products = products_of_estimate(plan);
  CHECK(products > 0);
  plan.spec.num_layers = 60;
  plan.spec.layers.resize(60);
  CHECK(products_of_estimate(plan) == products);
  CHECK(products_of_estimate(large) == products);
}

TEST_CASE("activations are foretold where layers pass on inputs, keys and values") {
  const Workbench bench;
  bench.write("model/config.json", R"({
    "model_type": "gemma4_text", "vocab_size": 448, "hidden_size": 64, "intermediate_size": 160,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "global_head_dim": 32, "sliding_window": 16, "max_position_embeddings": 128,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention",
                    "sliding_attention", "full_attention"],
    "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": 448})");
  for (const char* config :
       {"{}", R"({"activation_checkpointing": {"number_checkpoints": 100}})"}) {
    bench.write("ds.json", config);
    for (const char* flags : {"", "--bf16"}) {
      CAPTURE(std::string(config));
      CAPTURE(std::string(flags));
      const RunPlan plan = plan_of(bench, fmt::format("--micro-batch 40 {} --deepspeed {}", flags,
                                                      (bench / "ds.json").string()));
      const double found = ratio(plan);
      CHECK(found > 0.95);
      CHECK(found < 1.25);
    }
  }
}

TEST_CASE("an evaluation's activations are foretold, too") {
  const Workbench bench;
  write_model(bench, 448);
  const RunPlan few = plan_of(bench, "--micro-batch 2");
  const RunPlan many =
      plan_of(bench, fmt::format("--micro-batch 2 --eval-data {} --eval-micro-batch 500",
                                 (bench / "train.bin").string()));
  const int64_t largest = foretold(many).memory.activations.device;
  CHECK(largest > 4 * foretold(few).memory.activations.device);
  const std::string line =
      fmt::format("--model {} --eval-only --data {} --seq-len 64 --micro-batch ",
                  (bench / "model").string(), (bench / "train.bin").string());
  CHECK(foretold(make_plan(parse_line(line + "500"), 1)).memory.activations.device == largest);
}

TEST_CASE("a micro-batch that cannot fit is refused at once, and one that does is named") {
  const Workbench bench;
  const RunPlan plan = plan_of(bench, "--micro-batch 100000");
  engine::RunMemory memory = foretold(plan);
  memory.free.host = FreeMemory{int64_t{4} << 30, "the limit"};
  CHECK(memory.memory.activations.device > (int64_t{10} << 30));
  std::string refusal;
  try {
    engine::require_memory(memory);
  } catch (const Error& error) {
    refusal = error.what();
  }
  CHECK_MESSAGE(refusal.starts_with("the run needs "), refusal);
  CHECK(has(refusal, "activations (estimated) "));
  CHECK_FALSE(has(refusal, "activations not counted"));
  const std::string way = "this would fit:\n  --micro-batch ";
  REQUIRE_MESSAGE(has(refusal, way), refusal);
  const int64_t size = std::stoll(refusal.substr(refusal.find(way) + way.size()));
  const RunPlan smaller =
      plan_of(bench, fmt::format("--micro-batch {} --accumulation {}", size, 100000 / size));
  CHECK(engine::memory_need(foretold(smaller)).host <= memory.free.host->bytes);
  CHECK(size > 1000);

  const auto result = bench.zeroth(
      2, "--model model --data train.bin --seq-len 64 --steps 1 --micro-batch 1000000");
  CHECK(result.code == 1);
  CHECK_MESSAGE(has(result.err, "activations (estimated) "), result.err);
}

TEST_CASE("the summary tells the activations, which come not on top") {
  const Workbench bench;
  const auto result =
      bench.zeroth(2, "--model model --data train.bin --seq-len 16 --steps 1 --micro-batch 2");
  REQUIRE_MESSAGE(result.code == 0, result.err);
  CHECK_MESSAGE(has(result.out, ", activations (estimated) "), result.out);
  CHECK_FALSE(has(result.out, "activations not counted"));
}

}  // namespace zeroth::trainer::run_memory_test
