#include "engine/step/tape.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "engine/engine_impl.h"
#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/late_copies.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::saved_inputs_test {
namespace {

using testing::copies_of;
using testing::late_link;

// Writes down the calls: +b kept, ?b expected, -b taken.
class Noting final : public SavedInputs {
 public:
  explicit Noting(std::unique_ptr<SavedInputs> inputs) : inputs_(std::move(inputs)) {}
  void save(size_t block, const torch::Tensor& x) override {
    note('+', block);
    inputs_->save(block, x);
  }
  void prefetch(size_t block) override {
    note('?', block);
    inputs_->prefetch(block);
  }
  torch::Tensor restore(size_t block) override {
    note('-', block);
    return inputs_->restore(block);
  }
  std::vector<std::string> notes() const override { return inputs_->notes(); }
  std::string calls;

 private:
  void note(char what, size_t block) { calls += what + std::to_string(block) + " "; }
  std::unique_ptr<SavedInputs> inputs_;
};

struct Trained {
  std::vector<double> losses;
  std::vector<torch::Tensor> parameters;
};

using Schedule = configs::PipelineConfig::Schedule;

// Three steps of two micro-batches over a chain of 8 blocks; `kept` null: as the config says.
Trained train(configs::RecomputeConfig recompute, const std::shared_ptr<SavedInputs>& kept,
              Schedule schedule = Schedule::k1F1B) {
  Trained result;
  testing::run_ranks(1, [&](const std::shared_ptr<comm::DeviceMesh>& mesh) {
    configs::Config config = chain_config(6, 2, 1);
    config.recompute = recompute;
    config.pipeline.schedule = schedule;
    const model::Blocks blocks = testing::make_chain({.layers = 6});
    const auto engine = testing::make_engine(blocks, config, mesh);
    if (kept) engine->impl().set_saved_inputs(kept);
    testing::ChainLoader loader({.accumulation = 2});
    for (int step = 0; step < 3; ++step) result.losses.push_back(engine->train_batch(loader).loss);
    for (const auto& block : blocks) {
      for (const torch::Tensor& parameter : block->parameters()) {
        result.parameters.push_back(parameter.detach().clone());
      }
    }
  });
  return result;
}

}  // namespace

TEST_CASE("inputs that wait on the host change no bit") {
  for (const configs::RecomputeConfig& recompute : {configs::RecomputeConfig{.every_nth_block = 1},
                                                    {.every_nth_block = 2},
                                                    {.number_checkpoints = 4}}) {
    const Trained plain = train({}, nullptr);
    const Trained in_place = train(recompute, nullptr);
    CHECK(in_place.losses == plain.losses);
    for (const uint64_t seed : {0, 1, 2}) {
      for (const Schedule schedule : {Schedule::k1F1B, Schedule::kBreadthFirst}) {
        const auto link = late_link(seed);
        const Trained on_host = train(recompute, save_on_cpu(16, link), schedule);
        CHECK(copies_of(*link).copies() > 0);
        CHECK(on_host.losses == plain.losses);
        for (size_t i = 0; i < plain.parameters.size(); ++i) {
          CHECK(at::equal(on_host.parameters[i], plain.parameters[i]));
        }
      }
    }
  }
}

TEST_CASE("an input is on its way back while the segment behind it runs") {
  const auto noting = std::make_shared<Noting>(save_on_cpu(8, late_link()));
  train({.number_checkpoints = 4}, noting);
  // Segments of two blocks; of the last one nothing is kept. Two micro-batches, three steps.
  const std::string once = "+0 +2 +4 ?4 -4 ?2 -2 ?0 -0 ";
  std::string expected;
  for (int micro = 0; micro < 6; ++micro) expected += once;
  CHECK(noting->calls == expected);
}

TEST_CASE("breadth first, the next micro-batch's input is on its way back") {
  const auto noting = std::make_shared<Noting>(save_on_cpu(16, late_link()));
  train({.number_checkpoints = 2}, noting, Schedule::kBreadthFirst);
  const std::string all = noting->calls.substr(0, noting->calls.size() / 3);  // of one step
  // The second tape's inputs are those from 8 on; the last block keeps its graph.
  CHECK(
      all ==
      "+0 +8 +1 +9 +2 +10 +3 +11 +4 +12 +5 +13 +6 +14 "
      "?6 -6 ?14 -14 ?5 -5 ?13 -13 ?4 -4 ?12 -12 ?3 -3 ?11 -11 ?2 -2 ?10 -10 ?1 -1 ?9 -9 ?0 -0 ?8 "
      "-8 ");
}

TEST_CASE("the last input stays in place, and nothing waits for those on the way out") {
  const auto link = late_link();
  const auto kept = save_on_cpu(4, link);
  for (int micro = 1; micro <= 3; ++micro) {
    std::vector<torch::Tensor> inputs;
    for (size_t block = 0; block < 4; ++block) {
      inputs.push_back(torch::full({8}, static_cast<double>(block) + 10 * micro));
      kept->save(block, inputs[block]);
    }
    // Three are sent, one of them has been waited for so that two are on the way.
    CHECK(copies_of(*link).under_way() == 2);
    kept->prefetch(3);
    CHECK(kept->restore(3).data_ptr() == inputs[3].data_ptr());
    CHECK(copies_of(*link).under_way() == 2);
    for (size_t block = 3; block-- > 0;) {
      const torch::Tensor back = kept->restore(block);
      CHECK((back.data_ptr() == inputs[block].data_ptr()) == (block > 0));  // two had not gone yet
      CHECK(at::equal(back, inputs[block]));
    }
    CHECK(copies_of(*link).copies() == 4 * micro);
    CHECK(copies_of(*link).waits() == 0);
  }
}

TEST_CASE("an input that a step left behind on its way out is not the next one's") {
  const auto kept = save_on_cpu(3, late_link());
  for (const double step : {1.0, 2.0}) {  // the first one fails before backward
    for (size_t block = 0; block < 3; ++block) {
      kept->save(block, torch::full({8}, step + static_cast<double>(block)));
    }
  }
  for (size_t block = 3; block-- > 0;) {
    CHECK(at::equal(kept->restore(block), torch::full({8}, 2.0 + static_cast<double>(block))));
  }
}

TEST_CASE("host memory is as much as is kept there at a time, and the device's is given up") {
  const auto link = late_link();
  const auto kept = save_on_cpu(4, link);
  for (int micro = 0; micro < 3; ++micro) {
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> inputs;
    for (size_t block = 0; block < 4; ++block) {
      const torch::Tensor x = torch::full({2, 8}, static_cast<double>(block) + micro);
      inputs.emplace_back(x.getIntrusivePtr());
      kept->save(block, x);
    }
    CHECK(link->memory.bytes() == 3 * 4096);  // whole pages
    for (size_t block = 4; block-- > 0;) {
      CHECK(
          at::equal(kept->restore(block), torch::full({2, 8}, static_cast<double>(block) + micro)));
      CHECK(inputs[block].expired());
    }
  }
  CHECK(link->memory.bytes() == 3 * 4096);
}

TEST_CASE("no more than the last input and two on their way out are held on the device") {
  const auto kept = save_on_cpu(5, late_link());
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;
  for (size_t block = 0; block < 5; ++block) {
    const torch::Tensor x = torch::ones({4});
    memory.emplace_back(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(x.storage().unsafeGetStorageImpl()));
    kept->save(block, x);
  }
  size_t held = 0;
  for (const auto& storage : memory) held += storage.expired() ? 0 : 1;
  CHECK(held == 3);
}

TEST_CASE("inputs keep shape and dtype, an undefined one stays undefined, the last one counts") {
  const auto kept = save_on_cpu(2, late_link(1));
  kept->save(0, torch::Tensor());
  CHECK_FALSE(kept->restore(0).defined());
  const torch::Tensor x = torch::arange(24, torch::kBFloat16).view({2, 3, 4}).transpose(0, 2);
  kept->save(1, torch::ones({5}));  // of a step that failed
  kept->save(1, x);
  kept->save(0, torch::ones({2}));  // so that it leaves
  kept->prefetch(1);
  kept->prefetch(1);
  const torch::Tensor back = kept->restore(1);
  CHECK(at::equal(back, x));
  CHECK(back.sizes() == x.sizes());
  CHECK_FALSE(kept->restore(1).defined());
}

TEST_CASE("memory that cannot be page-locked is a note of the engine") {
  struct Refusing final : device::PagePinner {
    std::string pin(std::span<std::byte>) override { return "no"; }
    void unpin(std::span<std::byte>) noexcept override {}
  };
  testing::run_ranks(1, [](const std::shared_ptr<comm::DeviceMesh>& mesh) {
    configs::Config config = chain_config(6, 2, 1);
    config.recompute.every_nth_block = 1;
    const auto engine = testing::make_engine(testing::make_chain(), config, mesh);
    engine->impl().set_saved_inputs(
        save_on_cpu(5, std::make_shared<device::HostLink>(
                           device::HostLink{device::HostMemory(std::make_shared<Refusing>()),
                                            device::make_copy_stream(torch::kCPU)})));
    CHECK(engine->notes().empty());
    testing::ChainLoader loader({.accumulation = 2});
    engine->train_batch(loader);
    REQUIRE(engine->notes().size() == 1);
    CHECK(engine->notes()[0].find("cannot be page-locked") != std::string::npos);
  });
}

TEST_CASE("inputs stay in place unless there is a device beside the host") {
  const configs::RecomputeConfig config = {.every_nth_block = 1, .cpu_checkpointing = true};
  CHECK(make_saved_inputs(1, config, torch::kCPU) == nullptr);
  Tape tape(1);
  const torch::Tensor x = torch::ones({3});
  tape.offload(0, x);
  tape.prefetch(0);
  tape.restore(0);
  CHECK(tape.input(0).is_same(x));
}

}  // namespace zeroth::engine::saved_inputs_test
