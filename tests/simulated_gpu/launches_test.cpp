// How often a GPU is given work: which products, how many kernels, how many events.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>

#include "comm/device_mesh.h"
#include "device/events.h"
#include "device/host_link.h"
#include "engine/engine.h"
#include "model/blocks/build_blocks.h"
#include "model/blocks/head.h"
#include "model/blocks/linear.h"
#include "model/blocks/main_grad.h"
#include "model/hf/checkpoint_source.h"
#include "tests/engine/chain_config.h"
#include "tests/simulated_gpu/call_observer.h"
#include "tests/simulated_gpu/of_library.h"
#include "tests/simulated_gpu/tokens.h"

namespace zeroth::simulated::launches_test {
namespace {

using torch::Tensor;

const torch::Device kGpu(torch::kCUDA, 0);

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
  model::head_loss({{x, weight}}, targets, options).backward();
  std::vector<Tensor> products;
  for (const auto& [name, out] : Calls::of("aten::mm"))
    if (out.size(0) <= rows && out.size(1) == vocab) products.push_back(out);
  return products;
}

// What three products of one input are made of on the GPU: weights, and their open gradients, that
// lie `gap` elements apart in one buffer each. Where that is asked for the first is frozen, or the
// gradients of the outputs are parts of one.
struct Products {
  static constexpr int64_t kIn = 32;
  static constexpr int64_t kOut[] = {64, 16, 48};

  std::vector<Tensor> outputs, gradients;  // of the weights
  Tensor dx;
  size_t products = 0;  // of matrices
  size_t copies = 0;    // of gradients to one

  Products(int64_t gap, bool fresh, bool frozen = false, bool parts = false) {
    torch::manual_seed(8);
    Tensor x = torch::randn({2, 3, kIn});
    std::vector<Tensor> weights, dys;
    for (const int64_t out : kOut) {
      weights.push_back(torch::randn({out, kIn}));
      dys.push_back(torch::randn({2, 3, out}).to(kGpu));
    }
    const int64_t numel = 3 * gap + (64 + 16 + 48) * kIn;
    const Tensor flat = torch::zeros({numel}, kGpu);
    const Tensor sums = torch::full({numel}, fresh ? NAN : 1.0, torch::device(kGpu));
    std::vector<std::shared_ptr<model::Linear>> layers;
    int64_t offset = 0;
    for (size_t i = 0; i < 3; ++i) {
      const auto view = [&](const Tensor& of) {
        return of.narrow(0, offset, kOut[i] * kIn).view({kOut[i], kIn});
      };
      layers.push_back(std::make_shared<model::Linear>(model::LinearShape{kIn, kOut[i]}));
      view(flat).copy_(weights[i]);
      const Tensor& weight = layers[i]->weight;
      weight.unsafeGetTensorImpl()->shallow_copy_from(view(flat).getIntrusivePtr());
      if (frozen && i == 0) {
        weight.set_requires_grad(false);
      } else {
        weight.mutable_grad() = model::make_main_grad(view(sums), fresh);
      }
      gradients.push_back(view(sums));
      offset += kOut[i] * kIn + gap;
    }
    x = x.to(kGpu).requires_grad_();
    if (parts) dys = at::cat(dys, 2).split_with_sizes(kOut, 2);
    const Calls calls;
    outputs = model::linear(x, {layers[0].get(), layers[1].get(), layers[2].get()});
    torch::autograd::backward(outputs, dys);
    for (const char* const name : {"aten::mm", "aten::addmm", "aten::addmm_"})
      products += Calls::of(name).size();
    copies = Calls::of("aten::cat").size();
    dx = x.grad();
    for (size_t i = 0; i < 3; ++i) {
      if (frozen && i == 0) continue;
      CHECK(model::was_written(layers[i]->weight.grad(), fresh));
    }
  }
};

void check_equal(const Products& some, const Products& others) {
  const auto close = [](const Tensor& a, const Tensor& b) {
    CHECK(torch::allclose(a.cpu(), b.cpu(), 1e-5, 1e-5, /*equal_nan=*/true));
  };
  for (size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    close(some.outputs[i].detach(), others.outputs[i].detach());
    close(some.gradients[i], others.gradients[i]);
  }
  close(some.dx, others.dx);
}

// Tokens with the positions that they have without any, which all rows share.
class Placed final : public engine::DataLoader {
 public:
  model::MicroBatch next() override {
    model::MicroBatch batch = tokens_.next();
    batch.positions = torch::arange(16).expand({4, 16});
    return batch;
  }

 private:
  Tokens tokens_{/*masked=*/false};
};

struct Step {
  bool no_decay = false;
  bool placed = false;     // positions are given
  int64_t max_logits = 0;  // HeadLossOptions
};

const std::string kLlama = ZEROTH_SOURCE_DIR "/tests/model/fixtures/llama";

// Calls of an operator in the second step of that Llama with 64 tokens.
std::vector<Calls::Call> calls_in_step(const char* name, const Step& step) {
  const model::ModelSpec spec = model::read_model_spec(kLlama);
  configs::Config config = engine::chain_config(4, 1, 1);
  config.optimizer.weight_decay = 0.1;
  config.optimizer.no_decay = step.no_decay;
  const auto mesh = std::make_shared<comm::DeviceMesh>(kGpu, comm::make_solo_group());
  model::Blocks blocks = model::build_blocks(spec);
  blocks.back() = std::make_shared<model::Head>(spec, Tensor(), step.max_logits);
  const auto engine = engine::initialize(
      blocks, config, mesh, {.weights = model::open_weights(kLlama, spec, config.seed)});
  Tokens plain(/*masked=*/false);
  Placed placed;
  engine::DataLoader& data = step.placed ? static_cast<engine::DataLoader&>(placed) : plain;
  engine->train_batch(data);
  const Calls calls;
  engine->train_batch(data);
  return Calls::of(name);
}

}  // namespace

TEST_CASE("rows of logits begin at multiples of 64 elements, whatever the vocabulary") {
  for (const auto& [vocab, stride] :
       {std::pair<int64_t, int64_t>{50'257, 50'304}, std::pair<int64_t, int64_t>{64, 64}}) {
    const auto products = logit_products(3, vocab, {.divisor = 3});
    REQUIRE(products.size() == 1);
    CHECK(products[0].strides() == c10::IntArrayRef({stride, 1}));
  }
}

TEST_CASE("a head makes the logits of each chunk once where it knows the gradient, else twice") {
  // Ten rows in chunks of three.
  model::HeadLossOptions options{.divisor = 10, .max_logits = 3 * 100};
  CHECK(logit_products(10, 100, options).size() == 8);
  options.gradient = 1;
  CHECK(logit_products(10, 100, options).size() == 4);
}

TEST_CASE("a step of several chunks of logits makes each once: the engine tells the gradient") {
  const int64_t rows = 7, vocab = 64;  // nothing else in it has seven rows
  const auto products = calls_in_step("aten::mm", {.max_logits = rows * vocab});
  CHECK(std::count_if(products.begin(), products.end(), [&](const Calls::Call& call) {
          return call.last.sizes() == c10::IntArrayRef({rows, vocab});
        }) == 64 / rows);
}

TEST_CASE("a head of several chunks makes no factor for its gradients where the engine's enters") {
  CHECK(calls_in_step("aten::div", {.max_logits = 7 * 64}).size() ==
        calls_in_step("aten::div", {.max_logits = 64 * 64}).size() - 1);  // that divides the scale
}

TEST_CASE("angles of given positions are made once in a step, for all layers") {
  CHECK(calls_in_step("aten::cos", {.placed = true}).size() == 1);
  CHECK(calls_in_step("aten::cos", {}).empty());  // those of a length were there already
}

TEST_CASE("products of one input whose weights lie side by side are one, forth and back") {
  for (const bool fresh : {false, true}) {
    const Products beside(0, fresh), apart(64, fresh);
    CHECK(beside.products == 3);
    CHECK(beside.copies == 1);
    CHECK(apart.products == 9);
    CHECK(apart.copies == 0);
    check_equal(beside, apart);
    const Products parts(0, fresh, /*frozen=*/false, /*parts=*/true);
    CHECK(parts.products == 3);
    CHECK(parts.copies == 0);
    check_equal(parts, apart);
  }
}

TEST_CASE("where a weight has no gradient only the gradients of the others are apart") {
  const Products beside(0, true, /*frozen=*/true), apart(64, true, /*frozen=*/true);
  CHECK(beside.products == 1 + 1 + 2);
  CHECK(apart.products == 3 + 3 + 2);
  check_equal(beside, apart);
}

TEST_CASE("a layer makes four products in the forward, and eight in the backward") {
  const size_t layers = model::build_blocks(model::read_model_spec(kLlama)).size() - 2;
  size_t products = 0;
  for (const char* const name : {"aten::mm", "aten::addmm", "aten::addmm_"})
    products += calls_in_step(name, {}).size();
  CHECK(products == layers * (4 + 8) + 3);  // and those of the head
}

TEST_CASE("the norm of all gradients of a step is one call") {
  CHECK(calls_in_step("zeroth::squared_norms", {}).size() == 1);
}

TEST_CASE(
    "the update of a block is one call, also of parameters that decay and others that do not") {
  const size_t blocks = model::build_blocks(model::read_model_spec(kLlama)).size();
  CHECK(calls_in_step("zeroth::update_", {}).size() == blocks);
  CHECK(calls_in_step("zeroth::update_", {.no_decay = true}).size() == blocks);
}

TEST_CASE("emulated kernels of norms make the residual sums of a layer, but for its last one") {
  if (std::getenv("ZEROTH_SIMULATED_KERNELS") == nullptr) return;  // formulas are other operators
  const size_t layers = model::build_blocks(model::read_model_spec(kLlama)).size() - 2;
  CHECK(calls_in_step("zeroth::add_rms_norm", {}).size() == layers);
  CHECK(calls_in_step("zeroth::rms_norm", {}).size() == layers + 1);  // and the head's
  const auto sums = calls_in_step("aten::add", {});
  CHECK(std::ranges::count_if(sums, [](const Calls::Call& call) { return call.last.dim() == 3; }) ==
        static_cast<int64_t>(layers));
}

TEST_CASE("an event is made anew only while the others are held") {
  const auto stream = device::current_stream({torch::kCUDA, 0});
  device::EventPool pool(torch::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
  const int64_t before = events();
  for (int i = 0; i < 3; ++i) {
    const device::Event from = pool.record(stream), to = pool.record(stream);
    to->synchronize();
    CHECK(from->query());
    CHECK(device::seconds_between(from, to) >= 0);
  }
  CHECK(events() == before + 2);
}

TEST_CASE("the events of copies are used again, however many copies there are") {
  const auto link = device::make_host_link(kGpu, /*pin_memory=*/true);
  const Tensor host = link->memory.zeros(1000, torch::kFloat);
  const Tensor device = torch::zeros({1000}, torch::device(kGpu));
  const int64_t before = events();
  for (int i = 0; i < 100; ++i) {
    const device::StreamEvent there =
        link->copies->copy(device, host, {link->copies->record_event()});
    link->copies->wait_event(there);
    const device::StreamEvent back =
        link->copies->copy(host, device, {link->copies->record_event()});
    link->copies->wait(back);
    torch::cuda::synchronize();
  }
  // Held at most, when the device is late: two of record_event(), and the begin and end of both
  // copies, of the wait between them, and of the next round's first copy.
  CHECK(events() - before <= 2 + 2 * 4);
  CHECK(events() > before);
}

}  // namespace zeroth::simulated::launches_test
