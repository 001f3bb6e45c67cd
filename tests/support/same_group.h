// The ranks of another mesh, for a mesh on another device.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "comm/mesh.h"

namespace zeroth::testing {

class SameGroup final : public comm::Group {
 public:
  explicit SameGroup(std::shared_ptr<comm::Mesh> mesh) : mesh_(std::move(mesh)) {}
  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->world_size(); }
  comm::Pending all_reduce(const torch::Tensor& tensor, comm::Reduce op,
                           std::string_view what) override {
    return mesh_->data().all_reduce(tensor, op, what);
  }
  comm::Pending all_gather(const torch::Tensor& out, const torch::Tensor& in,
                           std::string_view what) override {
    return mesh_->data().all_gather(out, in, what);
  }
  comm::Pending reduce_scatter(const torch::Tensor& out, const torch::Tensor& in,
                               std::string_view what) override {
    return mesh_->data().reduce_scatter(out, in, what);
  }
  comm::Pending broadcast(const torch::Tensor& tensor, int root, std::string_view what) override {
    return mesh_->data().broadcast(tensor, root, what);
  }

 private:
  std::shared_ptr<comm::Mesh> mesh_;
};

}  // namespace zeroth::testing
