// The ranks of another mesh, for a mesh on another device.
#pragma once

#include <memory>
#include <utility>

#include "comm/device_mesh.h"

namespace zeroth::testing {

class SameGroup final : public comm::Group {
 public:
  explicit SameGroup(std::shared_ptr<comm::DeviceMesh> mesh) : mesh_(std::move(mesh)) {}
  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->world_size(); }
  comm::CollectiveHandle issue(const comm::Collective& collective) override {
    return mesh_->world().issue(collective);
  }
  std::unique_ptr<comm::Group> split(const comm::Partition& partition) override {
    return mesh_->world().split(partition);
  }

 private:
  std::shared_ptr<comm::DeviceMesh> mesh_;
};

}  // namespace zeroth::testing
