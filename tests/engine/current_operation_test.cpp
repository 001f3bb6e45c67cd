// What an engine tells of itself: which block it was at when it threw, and that a rank wants to
// end.
#include <c10/util/Exception.h>
#include <doctest/doctest.h>

#include <new>

#include "tests/engine/chain_config.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine::current_operation_test {
namespace {

// A loader that wants training to end from its second step on, on one rank.
class EndsEarly final : public DataLoader {
 public:
  explicit EndsEarly(int rank) : inner_({.rank = rank, .world_size = 2}), first_(rank == 0) {}
  model::MicroBatch next() override {
    ++steps_;
    return inner_.next();
  }
  bool stop_requested() override { return !first_ && steps_ > 1; }

 private:
  testing::ChainLoader inner_;
  bool first_;
  int steps_ = 0;
};

// A block that lacks memory in forward, or in backward.
struct Hungry final : model::Block {
  explicit Hungry(bool in_backward) : Block("hungry"), in_backward_(in_backward) {
    weight_ = register_parameter("weight", torch::ones({1}));
  }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    if (!in_backward_) throw std::bad_alloc();
    const torch::Tensor y = x * weight_;
    if (y.requires_grad()) {
      y.register_hook([](const torch::Tensor& dy) -> torch::Tensor {
        TORCH_CHECK_WITH(OutOfMemoryError, !dy.defined(), "CUDA out of memory.");
        return dy;
      });
    }
    return y;
  }
  bool in_backward_;
  torch::Tensor weight_;
};

}  // namespace

TEST_CASE("what one rank's loader wants all ranks know at the end of the step") {
  testing::run_ranks(2, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    const auto engine = testing::make_engine(testing::make_chain(), chain_config(6, 1, 2), mesh);
    EndsEarly loader(mesh->rank());
    engine->train_batch(loader);
    CHECK_FALSE(engine->decision().stop_requested);
    engine->train_batch(loader);
    CHECK(engine->decision().stop_requested);
  });
}

TEST_CASE("a block that throws is named with its direction, and none is after a step") {
  testing::run_ranks(1, [](std::shared_ptr<comm::DeviceMesh> mesh) {
    for (const bool in_backward : {false, true}) {
      model::Blocks blocks = testing::make_chain();
      const auto good = testing::make_engine(testing::make_chain(), chain_config(6, 1, 1), mesh);
      blocks.insert(blocks.begin() + 2, std::make_shared<Hungry>(in_backward));
      const auto engine = testing::make_engine(blocks, chain_config(6, 1, 1), mesh);
      testing::ChainLoader loader({.global_batch = 6}), other({.global_batch = 6});
      CHECK_THROWS(engine->train_batch(loader));
      CHECK(engine->current_operation() ==
            (in_backward ? "backward of block hungry" : "forward of block hungry"));
      if (!in_backward) {
        CHECK_THROWS(engine->eval_batch(loader, 1));
        CHECK(engine->current_operation() == "evaluation of block hungry");
      }
      good->train_batch(other);
      CHECK(good->current_operation() == "");
    }
  });
}

TEST_CASE("a block that throws in a pipeline is named with its stage") {
  const comm::MeshShape grid = comm::MeshShape().with(comm::MeshDim::kPp, 2);
  CHECK_THROWS(testing::run_ranks(
      2,
      [](std::shared_ptr<comm::DeviceMesh> mesh) {
        configs::Config config = chain_config(6, 1, 1);
        config.pipeline.stages = 2;
        config.pipeline.partition = "uniform";
        model::Blocks blocks = testing::make_chain();
        blocks.insert(blocks.end() - 1, std::make_shared<Hungry>(false));
        const auto engine = testing::make_engine(blocks, config, mesh);
        testing::ChainLoader loader({.global_batch = 6});
        if (mesh->rank() == 0) {
          engine->train_batch(loader);
        } else {
          CHECK_THROWS_AS(engine->train_batch(loader), std::bad_alloc);
          CHECK(engine->current_operation() == "forward of block hungry (stage 1)");
          throw std::bad_alloc();
        }
      },
      {.grid = grid}));
}

}  // namespace zeroth::engine::current_operation_test
