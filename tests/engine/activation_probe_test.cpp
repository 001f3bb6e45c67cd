#include "engine/memory/activation_probe.h"

#include <doctest/doctest.h>

namespace zeroth::engine::activation_probe_test {
namespace {

// Bytes of which a test can say how many they are.
class Plain final : public model::Block {
 public:
  Plain(const char* label, int64_t width) : Block(label), width_(width) {
    weight_ =
        register_parameter("weight", torch::empty({width}, torch::TensorOptions(torch::kMeta)));
  }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch& batch) override {
    const torch::Tensor in =
        x.defined() ? x : torch::zeros({batch.tokens.size(0), batch.tokens.size(1), width_});
    const torch::Tensor table = torch::ones({1024});  // as large for any batch
    const torch::Tensor product = in * weight_ * table[0];
    const torch::Tensor y = label() == "last" ? product.sum() : product;
    const int64_t rows = batch.tokens.size(0);
    rows_forward += rows;
    if (y.requires_grad()) y.register_hook([this, rows](const auto&) { rows_backward += rows; });
    return y;
  }

  int64_t rows_forward = 0, rows_backward = 0;

 private:
  int64_t width_;
  torch::Tensor weight_;
};

model::Blocks make_blocks(int64_t width) {
  return {std::make_shared<Plain>("first", width), std::make_shared<Plain>("middle", width),
          std::make_shared<Plain>("last", width)};
}

}  // namespace

TEST_CASE("what a block takes is told per token, apart from what does not grow") {
  constexpr int64_t kWidth = 512, kLength = 32;
  const auto blocks = probe_blocks(make_blocks(kWidth), {.length = kLength});
  const double row = 4.0 * kWidth;  // bytes of a token
  CHECK(blocks[1].bytes.output.per_token == row);
  CHECK(blocks[1].bytes.output.fixed == 0);
  CHECK(blocks[1].bytes.no_grad.per_token == 2 * row);  // the product, and its product
  CHECK(blocks[1].bytes.no_grad.fixed == 4 * 1024);
  CHECK(blocks[1].bytes.kept.per_token >= row);
  CHECK(blocks[1].bytes.forward.per_token >= blocks[1].bytes.kept.per_token);
  CHECK(blocks[1].bytes.freed.per_token > 0);
  CHECK(blocks[1].seconds_per_token > 0);
  const auto evaluated = probe_blocks(make_blocks(kWidth), {.length = kLength, .trains = false});
  CHECK(evaluated[1].bytes.no_grad.per_token == blocks[1].bytes.no_grad.per_token);
  CHECK(evaluated[1].bytes.kept.per_token == 0);
}

TEST_CASE("a probe of one row counts all of it for each row") {
  constexpr int64_t kWidth = 512, kLength = 32;
  const auto blocks = probe_blocks(make_blocks(kWidth), {.length = kLength, .max_operations = 0});
  CHECK(blocks[1].bytes.no_grad.fixed == 0);
  CHECK(blocks[1].bytes.no_grad.per_token == 2 * 4.0 * kWidth + 4.0 * 1024 / kLength);
}

TEST_CASE(
    "a probe runs one row forward with a graph and without, and back, or few of small blocks") {
  constexpr int64_t kWidth = 512, kLength = 32;
  constexpr double kFourRows = 4 * 6.0 * 3 * kWidth * kLength;
  struct Case {
    double max_operations;
    bool trains;
    int64_t forward, backward;  // rows of each block at most
  };
  for (const Case& c : {Case{0, true, 2, 1}, Case{0, false, 1, 0}, Case{kFourRows, true, 2, 1},
                        Case{2 * kFourRows, true, 128, 64}, Case{1e12, true, 128, 64}}) {
    const model::Blocks blocks = make_blocks(kWidth);
    probe_blocks(blocks,
                 {.length = kLength, .trains = c.trains, .max_operations = c.max_operations});
    for (const auto& block : blocks) {
      const auto& plain = static_cast<const Plain&>(*block);
      CHECK(plain.rows_forward > 0);
      CHECK(plain.rows_forward <= c.forward);
      CHECK(plain.rows_backward <= c.backward);
    }
  }
}

TEST_CASE("allocations are counted from where it is said") {
  const auto count = std::make_shared<Allocations>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, count);
  const torch::Tensor held = torch::empty({1000});
  CHECK(count->now() == 4000);
  count->begin();
  torch::Tensor passing = torch::empty({500});
  passing = torch::Tensor();
  CHECK(count->now() == 0);
  CHECK(count->peak() == 2000);
}

}  // namespace zeroth::engine::activation_probe_test
