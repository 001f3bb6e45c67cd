// A chain whose blocks ranks of axis tensor share in every way there is: by rows, unevenly, by
// columns, as boxes of a fused matrix, in copies, not at all. It runs on one rank.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "comm/device_mesh.h"
#include "model/block.h"
#include "tests/support/chain.h"
#include "tests/support/ranks.h"

namespace zeroth::engine {

// A parameter of the whole model.
struct SharedParameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t dimension = -1;               // that is cut; none: all ranks hold all
  int copies = 1;                       // as model::Split
  std::vector<std::string> fused = {};  // equal parts of it, each of which is cut
  bool trained = true;
};

class SplitBlock : public model::Block {
 public:
  SplitBlock(const std::string& label, const std::vector<SharedParameter>& parameters, int rank,
             int ranks)
      : Block(label) {
    for (const SharedParameter& parameter : parameters) add(parameter, rank, ranks);
  }
  std::optional<model::Splits> splits() const override { return splits_; }

 protected:
  torch::Tensor own(const std::string& name) { return named_parameters()[name]; }

 private:
  // Different in each parameter, the same on all ranks.
  torch::Tensor whole(const SharedParameter& parameter) const {
    int64_t numel = 1;
    for (const int64_t extent : parameter.shape) numel *= extent;
    const auto salt = static_cast<double>(fnv1a(label() + parameter.name) % 10'000);
    const torch::Tensor counter = at::arange(numel, torch::kDouble) + salt;
    return ((counter * 0.6180339887).frac() - 0.5).to(torch::kFloat).view(parameter.shape);
  }

  void add(const SharedParameter& parameter, int rank, int ranks) {
    const torch::Tensor all = whole(parameter);
    if (parameter.dimension < 0 || ranks == 1) {
      register_parameter(parameter.name, all, parameter.trained);
      return;
    }
    const int64_t extent = parameter.shape[static_cast<size_t>(parameter.dimension)];
    const auto parts = parameter.fused.empty() ? std::vector{parameter.name} : parameter.fused;
    const int64_t of_part = extent / static_cast<int64_t>(parts.size());
    const int64_t max_rows = (of_part * parameter.copies + ranks - 1) / ranks;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t first = max_rows * (rank / parameter.copies);
      const int64_t begin = static_cast<int64_t>(i) * of_part + first;
      const torch::Tensor box =
          all.narrow(parameter.dimension, begin, std::min(max_rows, of_part - first)).clone();
      register_parameter(parts[i], box, parameter.trained);
      std::vector<int64_t> begins(parameter.shape.size(), 0);
      begins[static_cast<size_t>(parameter.dimension)] = begin;
      splits_[parts[i]] = {parameter.name, parameter.shape, begins, parameter.copies};
    }
  }

  model::Splits splits_;
};

class SplitEmbedding final : public SplitBlock {
 public:
  SplitEmbedding(int rank, int ranks)
      : SplitBlock("embedding", {{"weight", {19, 8}, 0}}, rank, ranks) {}
  torch::Tensor forward(const torch::Tensor&, const model::MicroBatch& batch) override {
    return at::embedding(own("weight"), batch.tokens);
  }
};

class SplitLayer final : public SplitBlock {
 public:
  SplitLayer(int index, int rank, int ranks)
      : SplitBlock("layers." + std::to_string(index),
                   {{"norm", {8}},
                    {"qkv", {8, 24}, 1, 1, {"q", "k", "v"}},
                    {"qkv_bias", {24}, 0, 1, {"q_bias", "k_bias", "v_bias"}},
                    {"few", {8, 8}, 1, 2},
                    {"frozen", {8, 8}, 1, 1, {}, false},
                    {"up", {8, 12}, 1},
                    {"down", {12, 8}, 0}},
                   rank, ranks) {}
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override {
    const torch::Tensor y = x * (1 + own("norm"));
    const auto qkv = (at::matmul(y, own("qkv")) + own("qkv_bias")).chunk(3, -1);
    const torch::Tensor z = at::tanh(qkv[0] * qkv[1] + qkv[2]) + at::matmul(y, own("few"));
    const torch::Tensor w = at::matmul(z, own("frozen"));
    return x + at::matmul(at::tanh(at::matmul(w, own("up"))), own("down"));
  }
};

class SplitHead final : public SplitBlock {
 public:
  SplitHead(int rank, int ranks) : SplitBlock("head", {{"weight", {19, 8}, 0}}, rank, ranks) {}
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch& batch) override {
    const torch::Tensor logits = at::matmul(x, own("weight").t());
    const torch::Tensor sum =
        at::cross_entropy_loss(logits.flatten(0, 1).to(torch::kFloat), batch.targets.flatten(), {},
                               at::Reduction::Sum, model::kIgnoreIndex);
    return sum / batch.loss_normalizer;
  }
};

inline model::Blocks make_split_chain(int rank, int ranks) {
  return {std::make_shared<SplitEmbedding>(rank, ranks),
          std::make_shared<SplitLayer>(0, rank, ranks),
          std::make_shared<SplitLayer>(1, rank, ranks), std::make_shared<SplitHead>(rank, ranks)};
}

inline model::Blocks make_split_chain(const comm::DeviceMesh& mesh) {
  return make_split_chain(mesh.coordinate(comm::MeshDim::kTp),
                          mesh.layout().shape()[comm::MeshDim::kTp]);
}

// Calls use(engine, mesh) on every rank of a grid, of which each has an engine of that chain.
template <typename Use>
void run_split_chain(const comm::MeshShape& shape, const configs::Config& config, const Use& use) {
  testing::RankOptions options;
  options.grid = shape;
  testing::run_ranks(
      shape.ranks(),
      [&](std::shared_ptr<comm::DeviceMesh> mesh) {
        const auto engine = testing::make_engine(make_split_chain(*mesh), config, mesh);
        use(*engine, *mesh);
      },
      options);
}

}  // namespace zeroth::engine
