#include "engine/state/mesh_ranks.h"

#include "comm/cpu_collectives.h"

namespace zeroth::engine {

std::vector<std::string> MeshRanks::gather(const std::string& mine) {
  return comm::all_gather_strings(mine, "what ranks tell", mesh_.cpu_group());
}

}  // namespace zeroth::engine
