#include "comm/comm_log.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "comm/call.h"
#include "comm/mesh.h"

namespace zeroth::comm {
namespace {

void finish_queued_work(torch::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

// As DeepSpeed's logger names it.
const char* name_of(const Collective& collective) {
  switch (collective.kind) {
    case Collective::Kind::kAllReduce:
      return collective.what == kBarrier ? "barrier" : "all_reduce";
    case Collective::Kind::kAllGather:
      return "all_gather_into_tensor";
    case Collective::Kind::kReduceScatter:
      return "reduce_scatter_tensor";
    case Collective::Kind::kBroadcast:
      return "broadcast";
  }
  return "";
}

class LoggedGroup final : public Group {
 public:
  LoggedGroup(std::unique_ptr<Group> group, CommLog& log) : group_(std::move(group)), log_(log) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  CommTimes times() const override { return group_->times(); }

  Pending issue(const Collective& collective) override {
    const char* const operation = name_of(collective);
    if (!log_.counts(operation)) return group_->issue(collective);
    const torch::Tensor& whole = collective.whole();
    finish_queued_work(whole.device());
    const Stopwatch watch;
    group_->issue(collective).wait();
    finish_queued_work(whole.device());
    log_.add(operation, collective.what, static_cast<int64_t>(whole.nbytes()), watch.seconds());
    return {};
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

void CommLog::add(std::string_view operation, std::string_view what, int64_t bytes,
                  double seconds) {
  std::string name(operation);
  if (config_.debug && !what.empty()) name += fmt::format(" ({})", what);
  Total& total = totals_[{name, bytes}];
  ++total.count;
  total.seconds += seconds;
  if (!config_.verbose) return;
  const Bandwidth speed = bandwidth(operation, bytes, seconds);
  lines_.push_back(
      fmt::format("comm op: {} | time (ms): {:.2f} | msg size: {} | algbw (Gbps): {:.2f} | busbw "
                  "(Gbps): {:.2f}",
                  name, seconds * 1e3, format_bytes(bytes), 8 * speed.algorithm, 8 * speed.bus));
}

CommLog::Bandwidth CommLog::bandwidth(std::string_view operation, int64_t bytes,
                                      double seconds) const {
  if (seconds <= 0) return {};
  const double algorithm = static_cast<double>(bytes) / seconds / 1e9;
  const double others = static_cast<double>(ranks_ - 1) / ranks_;
  if (operation.starts_with("all_reduce")) return {algorithm, algorithm * 2 * others};
  const bool parts = operation.starts_with("all_gather") || operation.starts_with("reduce_scatter");
  return {algorithm, parts ? algorithm * others : algorithm};
}

std::vector<std::string> CommLog::table() const {
  std::vector<std::string> lines;
  if (totals_.empty()) return lines;
  const size_t width =
      std::max_element(totals_.begin(), totals_.end(), [](const auto& a, const auto& b) {
        return a.first.first.size() < b.first.first.size();
      })->first.first.size();
  lines.push_back(fmt::format("{:<{}}  {:>10}  {:>8}  {:>11}  {:>9}  {:>12}  {:>12}", "collective",
                              width, "size", "count", "total ms", "mean ms", "algbw Gbps",
                              "busbw Gbps"));
  for (const auto& [key, total] : totals_) {
    const auto& [name, bytes] = key;
    const double mean = total.seconds / static_cast<double>(total.count);
    const Bandwidth speed = bandwidth(name, bytes, mean);
    lines.push_back(fmt::format("{:<{}}  {:>10}  {:>8}  {:>11.2f}  {:>9.3f}  {:>12.2f}  {:>12.2f}",
                                name, width, format_bytes(bytes), total.count, total.seconds * 1e3,
                                mean * 1e3, 8 * speed.algorithm, 8 * speed.bus));
  }
  return lines;
}

std::unique_ptr<Group> make_logged_group(std::unique_ptr<Group> group, CommLog& log) {
  return std::make_unique<LoggedGroup>(std::move(group), log);
}

}  // namespace zeroth::comm
