#include "model/blocks/head.h"

#include <doctest/doctest.h>

#include <cmath>

#include "model/blocks/main_grad.h"
#include "model/micro_batch.h"
#include "tests/model/materialize.h"

namespace zeroth::model::head_test {
namespace {

using torch::Tensor;

ModelSpec small() {
  ModelSpec spec;
  spec.vocab_size = 9;
  spec.hidden_size = 4;
  return spec;
}

struct Result {
  Tensor loss, dx, dweight;
};

struct Case {
  Tensor x, weight, targets;
};

Case make_case() {
  torch::manual_seed(6);
  Case c{torch::randn({10, 4}), torch::randn({7, 4}), torch::randint(0, 7, {10})};
  c.targets[3] = kIgnoreIndex;
  c.targets[9] = kIgnoreIndex;
  return c;
}

Result ours(const Case& c, const HeadLossOptions& options, bool open, double gradient = 1) {
  const Tensor x = c.x.clone().requires_grad_();
  const Tensor weight = c.weight.clone().requires_grad_();
  if (open) weight.mutable_grad() = torch::zeros_like(c.weight, torch::kFloat32);
  const Tensor loss = head_loss({{x, weight}}, c.targets, options);
  loss.backward(options.grad_output.defined() ? options.grad_output : torch::full({}, gradient));
  return {loss.detach(), x.grad(), weight.grad()};
}

Result theirs(const Case& c, double num_label_tokens) {
  const Tensor x = c.x.to(torch::kFloat64).requires_grad_();
  const Tensor weight = c.weight.to(torch::kFloat64).requires_grad_();
  const Tensor loss = at::cross_entropy_loss(at::mm(x, weight.t()), c.targets, {},
                                             at::Reduction::Sum, kIgnoreIndex) /
                      num_label_tokens;
  loss.backward();
  return {loss.detach(), x.grad(), weight.grad()};
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
  batch.targets = torch::tensor({1L, 2L, kIgnoreIndex, 8L, 0L, 3L}).view({2, 3});
  batch.loss_normalizer = 40;
  const Tensor sum = at::cross_entropy_loss(logits.view({6, 9}), batch.targets.view(-1), {},
                                            at::Reduction::Sum, kIgnoreIndex);
  CHECK(difference(head.forward(x, batch).detach(), (sum / 40).detach()) < 1e-6);
}

TEST_CASE("a tied head registers the embedding's tensor itself") {
  const Tensor table = torch::randn({9, 4}).requires_grad_();
  Head head(small(), table);
  CHECK(head.named_parameters()["weight"].is_same(table));
}

TEST_CASE("one chunk or several, open gradient or not: loss and gradients of cross-entropy") {
  const Case c = make_case();
  const Result expected = theirs(c, 20);
  for (const int64_t max_logits : {1000, 21, 1}) {
    for (const bool open : {false, true}) {
      const Result result = ours(c, {20, max_logits}, open);
      CHECK(difference(result.loss, expected.loss) < 1e-6);
      CHECK(difference(result.dx, expected.dx) < 1e-6);
      CHECK(difference(result.dweight, expected.dweight) < 1e-6);
    }
  }
}

TEST_CASE("several chunks visited once give the gradients of chunks that are visited again") {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    Case c = make_case();
    c.x = c.x.to(dtype);
    c.weight = c.weight.to(dtype);
    for (const bool open : {false, true}) {
      for (const double entering : {1.0, 512.0, 256.0}) {  // the last is not what was announced
        const HeadLossOptions again{.divisor = 20, .max_logits = 21};
        HeadLossOptions once = again;
        once.gradient = entering == 256 ? 512 : entering;
        const Result expected = ours(c, again, open, entering);
        const Result result = ours(c, once, open, entering);
        const double rounding = dtype == torch::kFloat32 ? 1e-6 : 1e-2;
        CHECK(torch::equal(result.loss, expected.loss));
        CHECK(difference(result.dx, expected.dx) < rounding);
        CHECK(difference(result.dweight, expected.dweight) < rounding);
      }
    }
  }
}

TEST_CASE("the announced tensor that enters scales nothing, and another one with its value does") {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    Case c = make_case();
    c.x = c.x.to(dtype);
    c.weight = c.weight.to(dtype);
    HeadLossOptions options{.divisor = 20, .max_logits = 21, .gradient = 512};
    const Result expected = ours(c, options, true, 512);
    options.grad_output = torch::full({}, 512.);
    const Result result = ours(c, options, true);
    CHECK(torch::equal(result.dx, expected.dx));
    CHECK(torch::equal(result.dweight, expected.dweight));
    const Tensor x = c.x.clone().requires_grad_();
    head_loss({{x, c.weight}}, c.targets, options).backward(torch::full({}, 1024.));
    CHECK(torch::equal(x.grad(), 2 * expected.dx));
  }
}

TEST_CASE("chunks of a frozen head, or below one, or of an evaluation are visited once, too") {
  const Case c = make_case();
  HeadLossOptions options{.divisor = 20, .max_logits = 21, .gradient = 1};
  const Result expected = ours(c, options, false);
  const Tensor x = c.x.clone().requires_grad_(), weight = c.weight.clone().requires_grad_();
  head_loss({{x, c.weight}}, c.targets, options).backward();
  CHECK(torch::equal(x.grad(), expected.dx));
  head_loss({{c.x, weight}}, c.targets, options).backward();
  CHECK(torch::equal(weight.grad(), expected.dweight));
  const torch::NoGradGuard no_grad;
  CHECK(torch::equal(head_loss({{x, weight}}, c.targets, options), expected.loss));
}

TEST_CASE("trained rows that are given are not looked for") {
  const Case c = make_case();
  const Result expected = ours(c, {20}, true);
  HeadLossOptions options{.divisor = 20};
  options.label_indices = torch::tensor({0, 1, 2, 4, 5, 6, 7, 8});
  const Result result = ours(c, options, true);
  CHECK(torch::equal(result.loss, expected.loss));
  CHECK(torch::equal(result.dweight, expected.dweight));
}

TEST_CASE("an adapter adds its product to the logits, in one chunk and several") {
  const Case c = make_case();
  const Tensor low = torch::randn({10, 2}), b = torch::randn({7, 2});
  for (const int64_t max_logits : {0, 21}) {
    for (const double gradient : {0.0, 1.0}) {
      std::vector<Tensor> own, expected;
      for (const Tensor& input : {c.x, c.weight, low, b}) {
        own.push_back(input.clone().requires_grad_(!input.is_same(c.weight)));
        expected.push_back(input.clone().requires_grad_());
      }
      HeadLossOptions options{.divisor = 8, .max_logits = max_logits, .gradient = gradient};
      const Tensor loss = head_loss({{own[0], own[1]}, {own[2], own[3]}}, c.targets, options);
      const Tensor logits =
          torch::mm(expected[0], expected[1].t()) + torch::mm(expected[2], expected[3].t());
      const Tensor from =
          at::cross_entropy_loss(logits, c.targets, {}, at::Reduction::Sum, kIgnoreIndex) / 8;
      CHECK(torch::allclose(loss.detach(), from.detach(), 1e-6));
      loss.backward();
      from.backward();
      CHECK(!own[1].grad().defined());
      for (const size_t i : {0, 2, 3})
        CHECK(torch::allclose(own[i].grad(), expected[i].grad(), 1e-5, 1e-7));
    }
  }
}

TEST_CASE("the gradient that enters scales the gradients, not the loss") {
  const Case c = make_case();
  const Result once = ours(c, {20}, true);
  const Result scaled = ours(c, {20}, true, 1024);
  CHECK(torch::equal(scaled.loss, once.loss));
  CHECK(difference(scaled.dx, 1024 * once.dx) < 1e-6);
  CHECK(difference(scaled.dweight, 1024 * once.dweight) < 1e-6);
}

TEST_CASE("without a trained token the loss is exactly 0 and so are the gradients") {
  Case c = make_case();
  c.targets.fill_(kIgnoreIndex);
  c.x.fill_(std::numeric_limits<float>::infinity());
  const Result result = ours(c, {20}, true);
  CHECK(result.loss.item<float>() == 0);
  CHECK(torch::equal(result.dx, torch::zeros_like(c.x)));
  CHECK(torch::equal(result.dweight, torch::zeros_like(c.weight)));
}

TEST_CASE("without a trained token the weight's gradient is zero, not absent") {
  Case c = make_case();
  c.targets.fill_(kIgnoreIndex);
  for (const bool fresh : {true, false}) {
    const Tensor weight = c.weight.clone().requires_grad_();
    const Tensor sum = torch::full_like(c.weight, fresh ? NAN : 3);
    weight.mutable_grad() = make_main_grad(sum, fresh);
    head_loss({{c.x.clone().requires_grad_(), weight}}, c.targets, {20}).backward();
    CHECK(was_written(weight.grad(), fresh));
    CHECK(torch::equal(sum, torch::full_like(c.weight, fresh ? 0 : 3)));
  }
  CHECK(torch::equal(ours(c, {20}, false).dweight, torch::zeros_like(c.weight)));
}

TEST_CASE("bf16 logits are widened before the softmax") {
  Case c = make_case();
  c.x = c.x.to(torch::kBFloat16);
  c.weight = c.weight.to(torch::kBFloat16);
  const Result expected = theirs(c, 8);
  for (const int64_t max_logits : {1000, 21}) {
    const Result result = ours(c, {8, max_logits}, true);
    CHECK((result.loss.scalar_type() == torch::kFloat32));
    CHECK(difference(result.loss, expected.loss) < 5e-3);
    CHECK(difference(result.dx, expected.dx) < 2e-2);
    CHECK(difference(result.dweight, expected.dweight) < 2e-2);
  }
}

TEST_CASE("a very improbable target gives a large, finite loss") {
  Case c = make_case();
  c.x.mul_(1000);
  const Result expected = theirs(c, 8);
  CHECK(difference(ours(c, {8}, true).loss, expected.loss) < 1e-6);
}

}  // namespace zeroth::model::head_test
