// The ranks of a mesh as those of a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/ranks.h"
#include "comm/mesh.h"

namespace zeroth::engine {

class MeshRanks : public checkpoint::Ranks {
 public:
  explicit MeshRanks(comm::Mesh& mesh) : mesh_(mesh) {}

  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.world_size(); }
  std::vector<std::string> gather(const std::string& mine) override;

 private:
  comm::Mesh& mesh_;
};

}  // namespace zeroth::engine
