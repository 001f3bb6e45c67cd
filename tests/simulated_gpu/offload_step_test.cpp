// What a step gives a GPU and its link to the host, and who waits for whom in it, where states and
// parameters rest on the host.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "comm/device_mesh.h"
#include "device/events.h"
#include "device/host_link.h"
#include "engine/engine.h"
#include "model/blocks/build_blocks.h"
#include "model/hf/checkpoint_source.h"
#include "tests/engine/chain_config.h"
#include "tests/simulated_gpu/call_observer.h"
#include "tests/simulated_gpu/of_library.h"
#include "tests/simulated_gpu/tokens.h"
#include "tests/support/temp_folder.h"

namespace zeroth::simulated::offload_step_test {
namespace {

using configs::OffloadDevice;
using Step = configs::OffloadOptimizerConfig::UpdateDevice;

const torch::Device kGpu(torch::kCUDA, 0);
constexpr int64_t kMain = 0;  // stream

// What the device is given, in order.
struct Call {
  std::string name;  // an operator's, or as CallObserver has it
  int64_t stream;    // that it is for
  int64_t point;     // of an event
  bool is_operator() const { return name.find("::") != std::string::npos; }
};
std::vector<Call> calls;
std::mutex guards_calls;

void note(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  const std::lock_guard lock(guards_calls);
  if (name == "record" || name == "block") {
    calls.push_back({name, arguments[0].toInt(), arguments[1].toInt()});
  } else {
    calls.push_back({name, device::current_stream(kGpu).id(), 0});
  }
}

// The Llama of 1.1B with a thousandth of its weights: 22 layers of eleven tiles of the least size.
constexpr const char* kSmallLlama = R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 8,
    "num_key_value_heads": 1, "num_hidden_layers": 22, "vocab_size": 1000, "rms_norm_eps": 1e-05,
    "max_position_embeddings": 2048, "tie_word_embeddings": false})";

struct Case {
  OffloadDevice optimizer = OffloadDevice::kNone;
  Step step = Step::kGpu;
  OffloadDevice parameters = OffloadDevice::kNone;
  int64_t accumulation = 1;
  bool overlap_step = false;
};
constexpr auto kHost = OffloadDevice::kCpu;

int64_t count_of(const char* name) {
  return std::count_if(calls.begin(), calls.end(),
                       [&](const Call& call) { return call.name == name; });
}

// Notes the calls of a step, the third.
void run_step(const Case& c) {
  const TempFolder directory;
  directory.write("config.json", kSmallLlama);
  const model::ModelSpec spec = model::read_model_spec(directory.path());
  configs::Config config = engine::chain_config(4, c.accumulation, 1);
  config.precision = configs::Precision::kBf16;
  config.zero.stage = c.parameters == kHost ? 3 : 2;
  config.zero.sub_group_size_elements = 4096;
  config.zero.prefetch_bucket_elements = 50'000;  // the next block
  config.zero.overlap_step = c.overlap_step;
  config.zero.offload_optimizer.device = c.optimizer;
  config.zero.offload_optimizer.step = c.step;
  config.zero.offload_param.device = c.parameters;
  const auto mesh = std::make_shared<comm::DeviceMesh>(kGpu, comm::make_solo_group());
  const auto engine =
      engine::initialize(model::build_blocks(spec), config, mesh,
                         {.weights = model::open_weights(directory.path(), spec, config.seed)});
  Tokens data(/*masked=*/false);
  for (int step = 0; step < 2; ++step) engine->train_batch(data);
  const auto observe = of_library<void(CallObserver)>("zeroth_simulated_observe");
  calls.clear();
  observe(&note);
  engine->train_batch(data);
  observe(nullptr);
}

// Of the main stream for work of another one.
struct Wait {
  int64_t stream;  // the other one
  int64_t work;    // operators that the main stream was given between that work and the wait
};
std::vector<Wait> waits_of_main() {
  std::vector<Wait> waits;
  std::map<int64_t, Wait> points;  // of other streams, with the operators until then
  int64_t operators = 0;
  for (const Call& call : calls) {
    if (call.is_operator() && call.stream == kMain) ++operators;
    if (call.name == "record" && call.stream != kMain) {
      points[call.point] = {call.stream, operators};
    }
    const auto point = points.find(call.point);
    if (call.name != "block" || call.stream != kMain || point == points.end()) continue;
    waits.push_back({point->second.stream, operators - point->second.work});
  }
  return waits;
}

int64_t at_once(const std::vector<Wait>& waits) {
  return std::count_if(waits.begin(), waits.end(), [](const Wait& wait) { return wait.work == 0; });
}

bool is_late() {
  const char* pace = std::getenv("ZEROTH_SIMULATED_PACE");
  return pace == nullptr || std::string_view(pace) == "late";
}

}  // namespace

TEST_CASE("work beside the main stream waits for the points it is given, and for nothing else") {
  const auto link = device::make_host_link(kGpu, /*pin_memory=*/true);
  device::CopyStream& copies = *link->copies;
  const torch::Tensor x = torch::ones({1000}, torch::device(kGpu));
  const device::StreamEvent before = copies.record_event();
  const torch::Tensor main = x * 5;
  const device::StreamEvent after = copies.record_event();
  torch::Tensor y;
  const device::StreamEvent done = copies.run_on_side_stream({before}, [&] { y = x + 2; });
  copies.wait(done);
  if (is_late()) CHECK_FALSE(copies.is_complete(after));
  copies.wait_event(done);
  CHECK((y + main).sum().item<double>() == 8000);
}

TEST_CASE("a block waits for its own parameters on their way to the GPU, and for no later ones") {
  run_step({.parameters = kHost});
  const std::vector<Wait> waits = waits_of_main();
  CHECK(at_once(waits) <= 1);  // for those of the first block, which nothing hides
  if (is_late()) CHECK(waits.size() >= 2 * 22);
}

TEST_CASE("a GPU updates what rests on the host beside the forward pass of earlier blocks") {
  for (const Case& c : {Case{.optimizer = kHost}, Case{.optimizer = kHost, .parameters = kHost},
                        Case{.overlap_step = true}}) {
    run_step(c);
    std::set<int64_t> streams;
    int64_t updates = 0;
    for (const Call& call : calls) {
      if (call.name != "zeroth::update_") continue;
      ++updates;
      streams.insert(call.stream);
    }
    CHECK(updates == 16 + 22 * 11 + 16);  // a tile of each array at a time
    if (c.optimizer == kHost) {
      // Master and states back, gradients of each unit; and parameters that rest there.
      const int64_t units = 24;
      CHECK(count_of("copy_to_host") == 3 * updates + (c.parameters == kHost ? 2 : 1) * units);
    }
    REQUIRE(streams.size() == 1);
    CHECK_FALSE(streams.contains(kMain));
    std::vector<Wait> waits = waits_of_main();
    std::erase_if(waits, [&](const Wait& wait) { return !streams.contains(wait.stream); });
    CHECK(at_once(waits) <= 1);
    if (is_late()) CHECK(waits.size() >= 24);
  }
}

}  // namespace zeroth::simulated::offload_step_test
