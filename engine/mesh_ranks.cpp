#include "engine/mesh_ranks.h"

#include "comm/agreement.h"

namespace zeroth::engine {

std::vector<std::string> MeshRanks::gather(const std::string& mine) {
  return comm::gather_texts(mine, "what ranks tell", mesh_.host());
}

}  // namespace zeroth::engine
