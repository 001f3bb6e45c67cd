// A block that ranks of axis tensor share, made by hand: all kinds of parameters that there are.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "comm/device_mesh.h"
#include "model/block.h"

namespace zeroth::zero {

// The whole block has columns [5, 16], of which each rank has its own; keys [12, 7], of which two
// neighbours have the same rows; and a norm [9], which all have.
class SplitBlock final : public model::Block {
 public:
  // What a rank that stands at `tensor` of `ranks` holds of it.
  SplitBlock(std::string label, int tensor, int ranks) : Block(std::move(label)) {
    const int copies = std::min(ranks, 2);
    add("columns", {5, 16 / ranks}, {{5, 16}, {0, 16 / ranks * tensor}, 1});
    add("keys", {12 * copies / ranks, 7},
        {{12, 7}, {12 * copies / ranks * (tensor / copies), 0}, copies});
    register_parameter("norm", torch::zeros({9}));
  }
  SplitBlock(std::string label, const comm::DeviceMesh& mesh)
      : SplitBlock(std::move(label), mesh.coordinate(comm::MeshDim::kTp),
                   mesh.layout().shape()[comm::MeshDim::kTp]) {}
  std::optional<model::Splits> splits() const override { return splits_; }
  torch::Tensor forward(const torch::Tensor& x, const model::MicroBatch&) override { return x; }

 private:
  struct Where {
    std::vector<int64_t> shape, begin;
    int copies;
  };
  void add(const std::string& name, std::vector<int64_t> own, Where where) {
    register_parameter(name, torch::zeros(own));
    splits_[name] = {"whole_" + name, where.shape, where.begin, where.copies};
  }

  model::Splits splits_;
};

}  // namespace zeroth::zero
