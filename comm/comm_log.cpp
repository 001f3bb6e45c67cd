#include "comm/comm_log.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/machine/timer.h"
#include "base/text/units.h"
#include "comm/cpu_collectives.h"

namespace zeroth::comm {
namespace {

void finish_queued_work(torch::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

// Returns the name of the operation in DeepSpeed's logger.
const char* deepspeed_name(const Collective& collective) {
  switch (collective.kind) {
    case Collective::OpType::kAllReduce:
      return collective.what == kBarrier ? "barrier" : "all_reduce";
    case Collective::OpType::kAllGather:
      return "all_gather_into_tensor";
    case Collective::OpType::kReduceScatter:
      return "reduce_scatter_tensor";
    case Collective::OpType::kBroadcast:
      return "broadcast";
    case Collective::OpType::kAllToAll:
      return "all_to_all_single";
  }
  return "";
}

class LoggedGroup final : public Group {
 public:
  LoggedGroup(std::unique_ptr<Group> group, CommLog& log) : group_(std::move(group)), log_(log) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  CommTimes times() const override { return group_->times(); }

  CollectiveHandle issue(const Collective& collective) override {
    const char* const operation = deepspeed_name(collective);
    if (!log_.counts(operation)) return group_->issue(collective);
    const torch::Tensor& whole = collective.whole();
    finish_queued_work(whole.device());
    const Timer watch;
    group_->issue(collective).wait();
    finish_queued_work(whole.device());
    log_.add({operation, static_cast<int64_t>(whole.nbytes()), size()}, collective.what,
             watch.seconds());
    return {};
  }

  std::unique_ptr<Group> split(const Partition& partition) override {
    return make_logged_group(group_->split(partition), log_);
  }

 private:
  std::unique_ptr<Group> group_;
  CommLog& log_;
};

}  // namespace

bool CommLog::counts(std::string_view operation) const {
  const auto& named = config_.prof_ops;
  return config_.prof_all || std::find(named.begin(), named.end(), operation) != named.end();
}

void CommLog::add(CollectiveKey key, std::string_view what, double seconds) {
  if (config_.debug && !what.empty()) key.operation += fmt::format(" ({})", what);
  Total& total = totals_[key];
  ++total.count;
  total.seconds += seconds;
  if (!config_.verbose) return;
  const Bandwidth speed = bandwidth(key, seconds);
  lines_.push_back(fmt::format(
      "comm op: {} | time (ms): {:.2f} | msg size: {} | algbw (Gbps): {:.2f} | busbw "
      "(Gbps): {:.2f}",
      key.operation, seconds * 1e3, format_bytes(key.bytes), 8 * speed.algorithm, 8 * speed.bus));
}

CommLog::Bandwidth CommLog::bandwidth(const CollectiveKey& key, double seconds) {
  if (seconds <= 0) return {};
  const double algorithm = static_cast<double>(key.bytes) / seconds / 1e9;
  const double others = static_cast<double>(key.ranks - 1) / key.ranks;
  const std::string& operation = key.operation;
  if (operation.starts_with("all_reduce")) return {algorithm, algorithm * 2 * others};
  const bool parts = operation.starts_with("all_gather") ||
                     operation.starts_with("reduce_scatter") || operation.starts_with("all_to_all");
  return {algorithm, parts ? algorithm * others : algorithm};
}

std::vector<std::string> CommLog::table() const {
  std::vector<std::string> lines;
  if (totals_.empty()) return lines;
  size_t width = 0;
  for (const auto& [key, total] : totals_) width = std::max(width, key.operation.size());
  lines.push_back(fmt::format("{:<{}}  {:>10}  {:>5}  {:>8}  {:>11}  {:>9}  {:>12}  {:>12}",
                              "collective", width, "size", "ranks", "count", "total ms", "mean ms",
                              "algbw Gbps", "busbw Gbps"));
  for (const auto& [key, total] : totals_) {
    const double mean = total.seconds / static_cast<double>(total.count);
    const Bandwidth speed = bandwidth(key, mean);
    lines.push_back(
        fmt::format("{:<{}}  {:>10}  {:>5}  {:>8}  {:>11.2f}  {:>9.3f}  {:>12.2f}  {:>12.2f}",
                    key.operation, width, format_bytes(key.bytes), key.ranks, total.count,
                    total.seconds * 1e3, mean * 1e3, 8 * speed.algorithm, 8 * speed.bus));
  }
  return lines;
}

std::unique_ptr<Group> make_logged_group(std::unique_ptr<Group> group, CommLog& log) {
  return std::make_unique<LoggedGroup>(std::move(group), log);
}

}  // namespace zeroth::comm
