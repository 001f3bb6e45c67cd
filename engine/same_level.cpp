#include "engine/same_level.h"

#include <cstdlib>

#include "base/error.h"
#include "engine/unit_place.h"

namespace zeroth::engine {
namespace {

struct Found {
  CpuLevel level;
  int64_t rank;  // the first that has it
};

// The least of all ranks' values, which are levels or their opposites.
Found least(int64_t value, const comm::Mesh& mesh) {
  const int64_t found = least_over_ranks(value, "CPU levels", mesh);
  const int64_t rank =
      least_over_ranks(value == found ? mesh.rank() : kNowhere, "CPU levels", mesh);
  return {static_cast<CpuLevel>(std::abs(found)), rank};
}

}  // namespace

void require_same_level(CpuLevel own, const comm::Mesh& mesh) {
  if (!mesh.device().is_cpu()) return;
  const auto value = static_cast<int64_t>(own);
  const Found lowest = least(value, mesh), highest = least(-value, mesh);
  if (lowest.level == highest.level) return;
  throw Error(
      "rank {} computes by {}, rank {} by {}: their results would differ. Set ZEROTH_CPU={} in "
      "the environment of all ranks",
      lowest.rank, name_of(lowest.level), highest.rank, name_of(highest.level),
      name_of(lowest.level));
}

}  // namespace zeroth::engine
