// A lane that fails as it is told, and what tests of files share.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "offload/file_lane.h"
#include "offload/swap_file.h"

namespace zeroth::offload {

using Engine = LaneOptions::Engine;

// What becomes of a piece: nothing special, -errno (nothing is transferred), or how many of its
// bytes are. Called by one lane at a time.
using FaultRule = std::function<std::optional<int64_t>(const FilePiece&)>;

struct Faults {
  std::mutex mutex;
  FaultRule rule;
};

class FaultyLane : public FileLane {
 public:
  FaultyLane(std::unique_ptr<FileLane> inner, std::shared_ptr<Faults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)), extra_(inner_->depth()) {}

  size_t depth() const override { return inner_->depth(); }

  void start(size_t number, const FilePiece& piece) override {
    const auto fault = [&] {
      const std::lock_guard lock(faults_->mutex);
      return faults_->rule(piece);
    }();
    FilePiece part = piece;
    if (fault) part.length = static_cast<size_t>(std::max<int64_t>(*fault, 0)) & ~size_t{4095};
    extra_[number] = fault ? *fault - static_cast<int64_t>(part.length) : 0;
    if (part.length == 0) {
      ended_.push_back({number, *fault});
    } else {
      inner_->start(number, part);
    }
  }

  void wait(std::vector<PieceResult>& ended) override {
    if (ended_.empty()) {
      std::vector<PieceResult> now;
      inner_->wait(now);
      for (const auto& result : now)
        ended.push_back({result.number, result.bytes + extra_[result.number]});
    }
    ended.insert(ended.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }

  void wake() override { inner_->wake(); }

 private:
  std::unique_ptr<FileLane> inner_;
  std::shared_ptr<Faults> faults_;
  std::vector<int64_t> extra_;  // bytes claimed beyond those transferred, by number
  std::vector<PieceResult> ended_;
};

inline FileLanes faulty(FileLanes lanes, FaultRule rule) {
  const auto faults = std::make_shared<Faults>();
  faults->rule = std::move(rule);
  for (auto& lane : lanes.lanes) lane = std::make_unique<FaultyLane>(std::move(lane), faults);
  return lanes;
}

// Those that this machine allows.
inline std::vector<Engine> engines() {
  const std::string refused = [] {
    LaneOptions options;
    options.descriptor = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    const std::string reason = make_uring_lane(options).refused;
    ::close(options.descriptor);
    return reason;
  }();
  if (refused.empty()) return {Engine::kUring, Engine::kThreads};
  MESSAGE("skipped: io_uring, for ", refused);
  return {Engine::kThreads};
}

inline LaneOptions lane_options(const SwapFile& file, Engine engine) {
  LaneOptions options;
  options.descriptor = file.descriptor();
  options.queue_depth = 8;
  options.threads = 3;
  options.engine = engine;
  return options;
}

inline void fill_randomly(std::span<std::byte> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t number = random();
    std::memcpy(bytes.data() + i, &number, 8);
  }
}

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace zeroth::offload
