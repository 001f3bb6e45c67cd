#include "engine/verify/stop_agreement.h"

#include <algorithm>
#include <array>

#include "comm/cpu_collectives.h"

namespace zeroth::engine {
namespace {

constexpr double kAskIntervalSeconds = 0.1;
constexpr int64_t kMaxGrowth = 4;  // a stride grows at most by this factor at a time

}  // namespace

bool StopAgreement::stop_agreed() {
  if (mesh_.world_size() == 1) return agreed_ = agreed_ || local_request();
  if (agreed_ || points_left_-- > 0) return agreed_;
  const double per_point = since_exchange_.seconds() / static_cast<double>(stride_);
  since_exchange_ = Timer();
  std::array max = {local_request() ? 1.0 : 0.0, per_point};
  comm::all_reduce_values(max, comm::ReduceOp::kMax, "wishes to end", mesh_);
  agreed_ = max[0] > 0;
  const double fit = kAskIntervalSeconds / std::max(max[1], 1e-6);
  stride_ = std::clamp(static_cast<int64_t>(fit), int64_t{1}, kMaxGrowth * stride_);
  points_left_ = stride_ - 1;
  return agreed_;
}

}  // namespace zeroth::engine
