#include "comm/groups/peer_reports.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/text/printable.h"
#include "comm/bootstrap/key_value_store.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

constexpr std::chrono::milliseconds kMaxReportInterval{5000};
constexpr std::chrono::milliseconds kStoreLimit{2000};  // rank 0, which serves it, may be suspended
constexpr std::chrono::milliseconds kGrace{2000};  // time in which other ranks may still report
constexpr std::chrono::milliseconds kPause{50};
constexpr size_t kMaxTextBytes = 1500;  // limit, because a stranger's text can have any length

std::string report_key(int rank) {
  return fmt::format("told/{}", rank);
}

}  // namespace

PeerReports::PeerReports(c10::intrusive_ptr<c10d::Store> store, int rank, Nodes nodes,
                         std::chrono::milliseconds limit)
    : store_(std::move(store)),
      rank_(rank),
      nodes_(std::move(nodes)),
      report_interval_(std::min(kMaxReportInterval, limit / 4)),
      next_(report_interval_) {}

void PeerReports::report_wait(std::chrono::milliseconds waited,
                              const std::function<std::string()>& text) {
  const std::lock_guard lock(mutex_);
  if (waited < next_) return;
  next_ = waited + report_interval_;
  report(fmt::format("waiting for {:.1f} s: {}", std::chrono::duration<double>(waited).count(),
                     text()));
  has_reported_ = true;
}

void PeerReports::clear() {
  const std::lock_guard lock(mutex_);
  next_ = report_interval_;
  if (std::exchange(has_reported_, false)) report("");
}

void PeerReports::report_failure(const std::string& text) {
  const std::lock_guard lock(mutex_);
  report(text);
  has_reported_ = false;
}

template <typename Work>
std::string PeerReports::ask_store(Work work) {
  if (!store_answers_) return {};
  try {
    return run_with_timeout(kStoreLimit, "the store of the run does not answer", std::move(work));
  } catch (const std::exception&) {  // the failure of the run is logged anyway, by this rank
    store_answers_ = false;
    return {};
  }
}

void PeerReports::report(const std::string& text) {
  ask_store([store = store_, key = report_key(rank_), text = text.substr(0, kMaxTextBytes)] {
    set_text(*store, key, text);
    return std::string();
  });
}

std::string PeerReports::read(int rank) {
  const auto get = [store = store_, key = report_key(rank)] {
    return store->check({key}) ? get_text(*store, key) : std::string();
  };
  return shortened(ask_store(get), kMaxTextBytes);
}

std::string PeerReports::reports_from(const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  std::map<int, std::string> reports;
  for (const int rank : ranks) reports[rank] = read(rank);
  SuspendAwareTimer time;
  const auto all_reported = [&] {
    return std::all_of(reports.begin(), reports.end(),
                       [](const auto& one) { return !one.second.empty(); });
  };
  while (store_answers_ && !all_reported() && time.elapsed() < kGrace) {
    std::this_thread::sleep_for(kPause);
    for (auto& [rank, text] : reports) {
      if (text.empty()) text = read(rank);
    }
  }
  std::map<int, std::string> lines;
  for (const auto& [rank, text] : reports) {
    lines[rank] = text.empty() ? "reports nothing" : "reports: " + text;
    if (!text.empty()) continue;
    for (const int mate : node_of(nodes_, rank).ranks) {
      if (mate == rank || lines.count(mate) != 0 || reports.count(mate) != 0) continue;
      if (const std::string of_mate = read(mate); !of_mate.empty())
        lines[mate] = "reports: " + of_mate;
    }
  }
  std::vector<std::string> texts;
  for (const auto& [rank, line] : lines)
    texts.push_back(fmt::format("{} {}", describe_rank(nodes_, rank), line));
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace zeroth::comm
