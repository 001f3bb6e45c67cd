#include "model/blocks/head.h"

#include <doctest/doctest.h>

#include "tests/model/materialize.h"

namespace zeroth::model {
namespace {

using torch::Tensor;

ModelSpec small() {
  ModelSpec spec;
  spec.vocab_size = 9;
  spec.hidden_size = 4;
  return spec;
}

}  // namespace

TEST_CASE("the loss is the cross-entropy of the logits over the step's trained tokens") {
  torch::manual_seed(10);
  Head head(small(), {});
  randomise(head);
  const Tensor x = torch::randn({2, 3, 4});
  MicroBatch batch;
  const Tensor logits = head.forward(x, batch);
  CHECK(logits.sizes().vec() == Sizes{2, 3, 9});
  batch.targets = torch::tensor({1L, 2L, kUntrained, 8L, 0L, 3L}).view({2, 3});
  batch.loss_divisor = 40;
  const Tensor sum = at::cross_entropy_loss(logits.view({6, 9}), batch.targets.view(-1), {},
                                            at::Reduction::Sum, kUntrained);
  CHECK(difference(head.forward(x, batch).detach(), (sum / 40).detach()) < 1e-6);
}

TEST_CASE("a tied head registers the embedding's tensor itself") {
  const Tensor table = torch::randn({9, 4}).requires_grad_();
  Head head(small(), table);
  CHECK(head.named_parameters()["weight"].is_same(table));
}

}  // namespace zeroth::model
