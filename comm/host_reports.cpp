#include "comm/host_reports.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/printable.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

constexpr std::chrono::milliseconds kLongestPatience{5000};
constexpr std::chrono::milliseconds kStoreLimit{2000};  // rank 0, which serves it, may be stopped
constexpr std::chrono::milliseconds kGrace{2000};       // in which others may still tell something
constexpr std::chrono::milliseconds kPause{50};
constexpr size_t kLongestText = 1500;  // a stranger's may be as long as he likes

std::string key_of(int rank) {
  return fmt::format("told/{}", rank);
}

}  // namespace

HostReports::HostReports(c10::intrusive_ptr<c10d::Store> store, int rank, Hosts hosts,
                         std::chrono::milliseconds limit)
    : store_(std::move(store)),
      rank_(rank),
      hosts_(std::move(hosts)),
      patience_(std::min(kLongestPatience, limit / 4)),
      next_(patience_) {}

void HostReports::waits(std::chrono::milliseconds waited,
                        const std::function<std::string()>& text) {
  const std::lock_guard lock(mutex_);
  if (waited < next_) return;
  next_ = waited + patience_;
  tell(fmt::format("waits {:.1f} s: {}", std::chrono::duration<double>(waited).count(), text()));
  told_ = true;
}

void HostReports::over() {
  const std::lock_guard lock(mutex_);
  next_ = patience_;
  if (std::exchange(told_, false)) tell("");
}

void HostReports::failed(const std::string& text) {
  const std::lock_guard lock(mutex_);
  tell(text);
  told_ = false;
}

void HostReports::tell(const std::string& text) {
  if (!store_answers_) return;
  try {
    const auto set = [store = store_, key = key_of(rank_), text = text.substr(0, kLongestText)] {
      store->set(key, std::vector<uint8_t>(text.begin(), text.end()));
      return true;
    };
    within(kStoreLimit, "the store of the run does not answer", set);
  } catch (const std::exception&) {  // that the run fails is told anyway, here
    store_answers_ = false;
  }
}

std::string HostReports::read(int rank) {
  if (!store_answers_) return {};
  try {
    const auto get = [store = store_, key = key_of(rank)]() -> std::string {
      if (!store->check({key})) return {};
      const std::vector<uint8_t> value = store->get(key);
      return {value.begin(), value.end()};
    };
    return shortened(within(kStoreLimit, "the store of the run does not answer", get),
                     kLongestText);
  } catch (const std::exception&) {
    store_answers_ = false;
    return {};
  }
}

std::string HostReports::told_by(const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  std::map<int, std::string> told;
  for (const int rank : ranks) told[rank] = read(rank);
  RunningTime time;
  const auto all_told = [&] {
    return std::all_of(told.begin(), told.end(),
                       [](const auto& one) { return !one.second.empty(); });
  };
  while (store_answers_ && !all_told() && time.passed() < kGrace) {
    std::this_thread::sleep_for(kPause);
    for (auto& [rank, text] : told) {
      if (text.empty()) text = read(rank);
    }
  }
  std::map<int, std::string> lines;
  for (const auto& [rank, text] : told) {
    lines[rank] = text.empty() ? "tells nothing" : "tells: " + text;
    if (!text.empty()) continue;
    for (const int mate : host_of(hosts_, rank).ranks) {
      if (mate == rank || lines.count(mate) != 0 || told.count(mate) != 0) continue;
      if (const std::string of_mate = read(mate); !of_mate.empty())
        lines[mate] = "tells: " + of_mate;
    }
  }
  std::vector<std::string> texts;
  for (const auto& [rank, line] : lines)
    texts.push_back(fmt::format("{} {}", name_on_host(hosts_, rank), line));
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace zeroth::comm
