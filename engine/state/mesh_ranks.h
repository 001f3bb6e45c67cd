// Adapter of a mesh's ranks to a checkpoint's RankGroup.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/rank_group.h"
#include "comm/device_mesh.h"

namespace zeroth::engine {

class MeshRanks : public checkpoint::RankGroup {
 public:
  explicit MeshRanks(comm::DeviceMesh& mesh) : mesh_(mesh) {}

  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.world_size(); }
  std::vector<std::string> gather(const std::string& mine) override;

 private:
  comm::DeviceMesh& mesh_;
};

}  // namespace zeroth::engine
