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
#include "offload/io_worker.h"
#include "offload/swap_file.h"

namespace zeroth::offload {

using IoEngine = IoWorkerOptions::IoEngine;

// What becomes of a piece: nothing special, -errno (nothing is transferred), or how many of its
// bytes are. Called by one lane at a time.
using FaultRule = std::function<std::optional<int64_t>(const IoOperation&)>;

struct Faults {
  std::mutex mutex;
  FaultRule rule;
};

class FaultyWorker : public IoWorker {
 public:
  FaultyWorker(std::unique_ptr<IoWorker> inner, std::shared_ptr<Faults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)), extra_(inner_->depth()) {}

  size_t depth() const override { return inner_->depth(); }

  void start(size_t index, const IoOperation& operation) override {
    const auto fault = [&] {
      const std::lock_guard lock(faults_->mutex);
      return faults_->rule(operation);
    }();
    IoOperation part = operation;
    if (fault) part.length = static_cast<size_t>(std::max<int64_t>(*fault, 0)) & ~size_t{4095};
    extra_[index] = fault ? *fault - static_cast<int64_t>(part.length) : 0;
    if (part.length == 0) {
      ended_.push_back({index, *fault});
    } else {
      inner_->start(index, part);
    }
  }

  void wait(std::vector<IoCompletion>& ended) override {
    if (ended_.empty()) {
      std::vector<IoCompletion> now;
      inner_->wait(now);
      for (const auto& result : now)
        ended.push_back({result.index, result.bytes + extra_[result.index]});
    }
    ended.insert(ended.end(), ended_.begin(), ended_.end());
    ended_.clear();
  }

  void wake() override { inner_->wake(); }

 private:
  std::unique_ptr<IoWorker> inner_;
  std::shared_ptr<Faults> faults_;
  std::vector<int64_t> extra_;  // bytes claimed beyond those transferred, by number
  std::vector<IoCompletion> ended_;
};

inline IoWorkers faulty(IoWorkers workers, FaultRule rule) {
  const auto faults = std::make_shared<Faults>();
  faults->rule = std::move(rule);
  for (auto& worker : workers.workers)
    worker = std::make_unique<FaultyWorker>(std::move(worker), faults);
  return workers;
}

// Those that this machine allows.
inline std::vector<IoEngine> engines() {
  const std::string refusal = [] {
    IoWorkerOptions options;
    options.descriptor = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    IoWorkers workers;
    const std::string reason = make_uring_worker(options, workers);
    ::close(options.descriptor);
    return reason;
  }();
  if (refusal.empty()) return {IoEngine::kUring, IoEngine::kThreads};
  MESSAGE("skipped: io_uring, for ", refusal);
  return {IoEngine::kThreads};
}

inline IoWorkerOptions worker_options(const SwapFile& file, IoEngine engine) {
  IoWorkerOptions options;
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
