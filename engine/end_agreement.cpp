#include "engine/end_agreement.h"

#include <algorithm>
#include <array>

#include "comm/agreement.h"

namespace zeroth::engine {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kBetweenQuestions = 0.1;  // seconds
constexpr int64_t kFaster = 4;             // a stride grows at most so much at a time

}  // namespace

bool EndAgreement::reached() {
  if (mesh_.world_size() == 1) return ended_ = ended_ || own_wish();
  if (ended_ || points_left_-- > 0) return ended_;
  ask();
  return ended_;
}

void EndAgreement::ask() {
  const auto now = std::chrono::steady_clock::now();
  const double per_point = Seconds(now - asked_).count() / static_cast<double>(stride_);
  asked_ = now;
  std::array greatest = {own_wish() ? 1.0 : 0.0, per_point};
  comm::agree(greatest, comm::Reduce::kMax, "wishes to end", mesh_);
  ended_ = greatest[0] > 0;
  const double fit = kBetweenQuestions / std::max(greatest[1], 1e-6);
  stride_ = std::clamp(static_cast<int64_t>(fit), int64_t{1}, kFaster * stride_);
  points_left_ = stride_ - 1;
}

}  // namespace zeroth::engine
