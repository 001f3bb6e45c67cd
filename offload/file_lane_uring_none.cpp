// Stands in for file_lane_uring.cpp in a build without liburing.
#include "offload/file_lane.h"

namespace zeroth::offload {

UringLane make_uring_lane(const LaneOptions&) {
  return {nullptr, false, "this build has no liburing", {}};
}

}  // namespace zeroth::offload
