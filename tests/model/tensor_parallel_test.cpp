#include "model/tensor_parallel.h"

#include <doctest/doctest.h>

#include "model/blocks/linear.h"
#include "tests/model/materialize.h"
#include "tests/support/ranks.h"

namespace zeroth::model::tensor_parallel_test {
namespace {

using torch::Tensor;

TensorParallelPtr fake_tensor_parallel(int rank, int size) {
  return std::make_shared<TensorParallel>(rank, size, TensorParallel::CommOptions{});
}

}  // namespace

TEST_CASE("tokens are cut into equal runs, of which the last ones are filled up") {
  const auto run = [](int64_t tokens, int rank) {
    return sequence_shard(tokens, *fake_tensor_parallel(rank, 4));
  };
  CHECK(run(8, 3).first == 6);
  CHECK(run(8, 3).tokens == 2);
  CHECK(run(9, 2).rows == 3);
  CHECK(run(9, 2).tokens == 3);
  CHECK(run(9, 3).tokens == 0);
  CHECK(run(5, 3).first == 5);  // not beyond the tokens
  CHECK(run(5, 3).tokens == 0);
  CHECK(run(1, 0).tokens == 1);
  CHECK(run(1, 1).tokens == 0);
  const Tensor x = torch::ones({5, 2});
  CHECK(pad_to_shards(x, *fake_tensor_parallel(0, 2)).size(0) == 6);
  CHECK(pad_to_shards(x, *fake_tensor_parallel(0, 2))[5].abs().sum().item<double>() == 0);
  CHECK(pad_to_shards(x, *fake_tensor_parallel(0, 5)).is_same(x));
}

TEST_CASE("gathering runs and summing them are each other's backward") {
  for (const int count : {2, 4}) {
    testing::run_ranks(count, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto tp = std::make_shared<TensorParallel>(
          mesh->rank(), count, TensorParallel::CommOptions{.group = &mesh->world()});
      const Tensor own = torch::full({2, 3}, mesh->rank() + 1.0).requires_grad_();
      const Tensor all = gather_sequence(own, tp, "runs");
      for (int rank = 0; rank < count; ++rank) CHECK(all[2 * rank][1].item<double>() == rank + 1);
      all.backward(torch::full({2 * count, 3}, mesh->rank() + 1.0));
      CHECK(own.grad()[0][0].item<double>() == count * (count + 1) / 2);
      CHECK(own.grad().sizes() == own.sizes());

      const Tensor addend = torch::full({2 * count, 3}, mesh->rank() + 1.0).requires_grad_();
      const Tensor sum = reduce_scatter_sequence(addend, tp, "addends");
      CHECK(sum[1][2].item<double>() == count * (count + 1) / 2);
      sum.backward(torch::full({2, 3}, mesh->rank() + 1.0));
      for (int rank = 0; rank < count; ++rank)
        CHECK(addend.grad()[2 * rank][1].item<double>() == rank + 1);
    });
  }
}

TEST_CASE("a rehearsal has the shapes of one rank and asks nobody") {
  const auto tp = fake_tensor_parallel(1, 3);
  const Tensor own = torch::ones({2, 4});
  CHECK(tp->all_gather(own, "x").sizes().vec() == Sizes{6, 4});
  const Tensor addend = torch::arange(12, torch::kFloat32).view({6, 2});
  CHECK(at::equal(tp->reduce_scatter(addend, "x"), addend.narrow(0, 2, 2)));
  const Tensor sum = torch::ones({3});
  tp->all_reduce(sum, comm::ReduceOp::kSum, "x");
  CHECK(at::equal(sum, torch::ones({3})));
}

TEST_CASE("a product cut by outputs and one by inputs behind it are two whole products") {
  torch::manual_seed(5);
  const Tensor first = torch::randn({12, 6}), second = torch::randn({5, 12});
  const Tensor biases[] = {torch::randn({12}), torch::randn({5})};
  const Tensor x = torch::randn({8, 6}).requires_grad_();
  const Tensor y = at::addmm(biases[1], at::addmm(biases[0], x, first.t()), second.t());
  const Tensor dy = torch::randn({8, 5});
  y.backward(dy);
  for (const int count : {2, 4}) {
    testing::run_ranks(count, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto tp = std::make_shared<TensorParallel>(
          mesh->rank(), count,
          TensorParallel::CommOptions{.group = &mesh->world(), .overlap = count == 4});
      const int64_t part = 12 / count, at = mesh->rank() * part, rows = 8 / count;
      const WeightShard out{ParallelStyle::kColwise, at, part, 12},
          in{ParallelStyle::kRowwise, at, part, 12};
      Linear a({6, 12, true, WeightLayout::kOutIn, out, tp});
      Linear b({12, 5, true, WeightLayout::kOutIn, in, tp});
      give_memory(a.weight, first.narrow(0, at, part).clone());
      give_memory(a.bias, biases[0].narrow(0, at, part).clone());
      give_memory(b.weight, second.narrow(1, at, part).contiguous());
      give_memory(b.bias, biases[1].clone());
      const auto own = [&](const Tensor& all) {
        return all.detach().narrow(0, mesh->rank() * rows, rows);
      };
      const Tensor input = own(x).clone().requires_grad_();
      const Tensor output = linear(linear(input, a), b);
      CHECK(difference(output, own(y)) < 1e-5);
      output.backward(own(dy).contiguous());
      CHECK(difference(input.grad(), own(x.grad())) < 1e-5);
      CHECK(difference(b.bias.grad(), own(dy).sum({0})) < 1e-5);
    });
  }
}

TEST_CASE("two products cut by inputs are reduced as one sum, forth and back") {
  torch::manual_seed(6);
  const Tensor weights[] = {torch::randn({5, 12}), torch::randn({8, 5})};  // the second [in, out]
  const Tensor bias = torch::randn({5});
  const Tensor inputs[] = {torch::randn({8, 12}).requires_grad_(),
                           torch::randn({8, 8}).requires_grad_()};
  const Tensor y = at::addmm(bias, inputs[0], weights[0].t()) + at::mm(inputs[1], weights[1]);
  const Tensor dy = torch::randn({8, 5});
  y.backward(dy);
  for (const int count : {2, 4}) {
    testing::run_ranks(count, [&](std::shared_ptr<comm::DeviceMesh> mesh) {
      const auto tp = std::make_shared<TensorParallel>(
          mesh->rank(), count, TensorParallel::CommOptions{.group = &mesh->world()});
      const auto part = [&](const Tensor& all, int64_t dim) {
        const int64_t size = all.size(dim) / count;
        return all.detach().narrow(dim, mesh->rank() * size, size).clone();
      };
      const auto shard = [&](int64_t size) {
        return WeightShard{ParallelStyle::kRowwise, mesh->rank() * size / count, size / count,
                           size};
      };
      Linear a({12, 5, true, WeightLayout::kOutIn, shard(12), tp});
      Linear b({8, 5, false, WeightLayout::kInOut, shard(8), tp});
      give_memory(a.weight, part(weights[0], 1));
      give_memory(a.bias, bias.clone());
      give_memory(b.weight, part(weights[1], 0));
      const Tensor x = part(inputs[0], 1).requires_grad_(), z = part(inputs[1], 1).requires_grad_();
      const int64_t before = mesh->times().collectives;
      const Tensor output = rowwise_sum({x, a}, {z, b});
      CHECK(mesh->times().collectives == before + 1);
      CHECK(difference(output, part(y, 0)) < 1e-5);
      output.backward(part(dy, 0));
      CHECK(mesh->times().collectives == before + 2);
      CHECK(difference(x.grad(), part(inputs[0].grad(), 1)) < 1e-5);
      CHECK(difference(z.grad(), part(inputs[1].grad(), 1)) < 1e-5);
      CHECK(difference(a.bias.grad(), part(dy, 0).sum({0})) < 1e-5);
      CHECK(difference(b.weight.grad(), at::mm(z.detach().t(), dy)) < 1e-5);
    });
  }
}

TEST_CASE("what the adapter of an unsplit product drops does not depend on the ranks") {
  torch::manual_seed(8);
  const Tensor weight = torch::randn({3, 6}), a = torch::randn({2, 6}), b = torch::randn({3, 2});
  const Tensor x = torch::randn({8, 6});
  MicroBatch batch;
  batch.tokens = torch::zeros({2, 4}, torch::kLong);
  batch.sample_seeds = {5, 6};
  const auto run = [&](const TensorParallelPtr& tp, const Tensor& own) {
    Linear layer(LinearShape{.in = 6, .out = 3, .tp = tp});
    layer.add_adapter(2, 0.5, make_dropout_site(0.5, "gate.lora"));
    give_memory(layer.weight, weight.clone());
    give_memory(layer.adapter->factors.a, a.clone());
    give_memory(layer.adapter->factors.b, b.clone());
    const torch::NoGradGuard no_grad;
    return linear(own, layer, batch);
  };
  const Tensor whole = run(nullptr, x);
  for (const int rank : {0, 1}) {
    const Tensor part = run(fake_tensor_parallel(rank, 2), x.narrow(0, 4 * rank, 4));
    CHECK(difference(part, whole.narrow(0, 4 * rank, 4)) < 1e-6);
  }
}

TEST_CASE("products say which box of a whole weight they are") {
  const auto tp = fake_tensor_parallel(1, 2);
  const WeightShard shard{ParallelStyle::kColwise, 36, 4, 96, 2, "qkv"};
  torch::nn::Module block;
  block.register_module("attention", std::make_shared<torch::nn::Module>())
      ->register_module(
          "k", std::make_shared<Linear>(LinearShape{6, 16, true, WeightLayout::kInOut, shard, tp}));
  block.register_module(
      "o", std::make_shared<Linear>(LinearShape{
               8, 6, true, WeightLayout::kOutIn, {ParallelStyle::kRowwise, 4, 4, 8}, tp}));
  const Splits splits = linear_splits(block);
  CHECK(splits.size() == 3);
  const Split& k = splits.at("attention.k.weight");
  CHECK(k.full_name == "attention.qkv.weight");
  CHECK(k.shape == Sizes{6, 96});
  CHECK(k.begin == Sizes{0, 36});
  CHECK(k.num_replicas == 2);
  CHECK(splits.at("attention.k.bias").begin == Sizes{36});
  CHECK(splits.at("o.weight").shape == Sizes{6, 8});
  CHECK(splits.at("o.weight").begin == Sizes{0, 4});
}

}  // namespace zeroth::model::tensor_parallel_test
