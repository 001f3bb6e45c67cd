// How often a GPU is given work: which products, how many kernels, how many events.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <mutex>

#include "engine/engine.h"
#include "model/build.h"
#include "model/checkpoint_source.h"
#include "model/head_loss.h"
#include "tests/engine/chain_config.h"
#include "tests/simulated_gpu/call_observer.h"
#include "tests/simulated_gpu/tokens.h"
#include "zero/host_link.h"

namespace zeroth::simulated {
namespace {

using torch::Tensor;

const torch::Device kGpu(torch::kCUDA, 0);

template <typename Function>
Function* of_library(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  const bool is_there = found != nullptr;
  REQUIRE(is_there);
  return reinterpret_cast<Function*>(found);
}

// Events that were made so far.
int64_t events() {
  static const auto count = of_library<int64_t()>("zeroth_simulated_events");
  return count();
}

// What the device is given while this lives, of which there is one at a time.
class Calls {
 public:
  struct Call {
    std::string name;
    Tensor last;  // argument that is a tensor: the one that is written, where one is
  };

  Calls() { observe(&note); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls() {
    observe(nullptr);
    noted().clear();
  }

  static std::vector<Call> of(const char* name) {
    const std::lock_guard lock(mutex());
    std::vector<Call> found;
    std::copy_if(noted().begin(), noted().end(), std::back_inserter(found),
                 [&](const Call& call) { return call.name == name; });
    return found;
  }

 private:
  static void observe(CallObserver observer) {
    of_library<void(CallObserver)>("zeroth_simulated_observe")(observer);
  }
  static void note(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
    const std::lock_guard lock(mutex());
    noted().push_back({name, {}});
    for (const c10::IValue& argument : arguments)
      if (argument.isTensor()) noted().back().last = argument.toTensor();
  }
  static std::vector<Call>& noted() {
    static std::vector<Call> calls;
    return calls;
  }
  static std::mutex& mutex() {
    static std::mutex guards_noted;
    return guards_noted;
  }
};

// The products of a loss and its backward that make logits.
std::vector<Tensor> logit_products(int64_t rows, int64_t vocab,
                                   const model::HeadLossOptions& options) {
  constexpr int64_t kHidden = 8;
  const Tensor x = torch::randn({rows, kHidden}).to(kGpu).requires_grad_();
  const Tensor weight = torch::randn({vocab, kHidden}).to(kGpu).requires_grad_();
  const Tensor targets = torch::randint(0, vocab, {rows}).to(kGpu);
  const Calls calls;
  model::head_loss(x, weight, targets, options).backward();
  std::vector<Tensor> products;
  for (const auto& [name, out] : Calls::of("aten::mm"))
    if (out.size(0) <= rows && out.size(1) == vocab) products.push_back(out);
  return products;
}

// Calls of an operator in the second step of a Llama.
int64_t calls_in_step(const char* name, bool no_decay) {
  const std::string folder = ZEROTH_SOURCE_DIR "/tests/model/fixtures/llama";
  const model::ModelSpec spec = model::read_model_spec(folder);
  configs::Config config = engine::chain_config(4, 1, 1);
  config.optimizer.weight_decay = 0.1;
  config.optimizer.no_decay = no_decay;
  const auto mesh = std::make_shared<comm::Mesh>(kGpu, comm::make_solo_group());
  const auto engine =
      engine::initialize(model::build_blocks(spec), config, mesh,
                         {.weights = model::open_weights(folder, spec, config.seed)});
  Tokens data(/*masked=*/false);
  engine->train_batch(data);
  const Calls calls;
  engine->train_batch(data);
  return std::ssize(Calls::of(name));
}

}  // namespace

TEST_CASE("rows of logits begin at multiples of 64 elements, whatever the vocabulary") {
  for (const auto& [vocab, stride] :
       {std::pair<int64_t, int64_t>{50'257, 50'304}, std::pair<int64_t, int64_t>{64, 64}}) {
    const auto products = logit_products(3, vocab, {.trained_tokens = 3});
    REQUIRE(products.size() == 1);
    CHECK(products[0].strides() == c10::IntArrayRef({stride, 1}));
  }
}

TEST_CASE("a head makes the logits of each chunk once where it knows the gradient, else twice") {
  // Ten rows in chunks of three.
  model::HeadLossOptions options{.trained_tokens = 10, .max_logits = 3 * 100};
  CHECK(logit_products(10, 100, options).size() == 8);
  options.gradient = 1;
  CHECK(logit_products(10, 100, options).size() == 4);
}

TEST_CASE("the norm of all gradients of a step is one call") {
  CHECK(calls_in_step("zeroth::squared_norm", /*no_decay=*/false) == 1);
}

TEST_CASE(
    "the update of a block is one call, also of parameters that decay and others that do not") {
  const auto spec = model::read_model_spec(ZEROTH_SOURCE_DIR "/tests/model/fixtures/llama");
  const auto blocks = static_cast<int64_t>(model::build_blocks(spec).size());
  CHECK(calls_in_step("zeroth::update_", /*no_decay=*/false) == blocks);
  CHECK(calls_in_step("zeroth::update_", /*no_decay=*/true) == blocks);
}

TEST_CASE("copies make no events once they have made some") {
  const auto link = zero::make_host_link(kGpu, /*pin_memory=*/true);
  const Tensor host = link->memory.zeros(1000, torch::kFloat);
  const Tensor device = torch::zeros({1000}, torch::device(kGpu));
  const auto copy = [&] {
    const offload::Point there = link->copies->copy(device, host, {link->copies->now()});
    link->copies->order(there);
    const offload::Point back = link->copies->copy(host, device, {link->copies->now()});
    link->copies->wait(back);
    torch::cuda::synchronize();
  };
  for (int i = 0; i < 5; ++i) copy();
  const int64_t before = events();
  CHECK(before > 0);
  for (int i = 0; i < 100; ++i) copy();
  CHECK(events() == before);
}

}  // namespace zeroth::simulated
