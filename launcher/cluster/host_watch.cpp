#include "launcher/cluster/host_watch.h"

#include <algorithm>
#include <utility>

namespace zeroth::launcher {

using std::chrono::milliseconds;

namespace {

constexpr int kMaxDoublings = 4;
constexpr int kLong = 10;             // times the pause between two tries
constexpr size_t kMaxKnown = 10'000;  // nodes come by any name

int doubled(int times) {
  return 1 << std::clamp(times, 0, kMaxDoublings);
}

}  // namespace

HostWatch::HostWatch(const std::vector<HostSlots>& hosts, milliseconds try_again)
    : try_again_(try_again) {
  set_wanted(hosts);
}

void HostWatch::set_wanted(const std::vector<HostSlots>& hosts) {
  for (const HostSlots& host : hosts)
    if (ever_.insert(host.host).second && !wanted_.empty())
      known_[host.host].missing = try_again_;  // new ones at once
  wanted_ = hosts;
}

size_t HostWatch::place(const std::string& name) const {
  const auto found = std::find_if(wanted_.begin(), wanted_.end(),
                                  [&](const HostSlots& host) { return host.host == name; });
  return static_cast<size_t>(found - wanted_.begin());
}

bool HostWatch::is_wanted(const HostSlots& host) const {
  return ever_.count(host.host) == 0 || place(host.host) < wanted_.size();
}

void HostWatch::sort(std::vector<int>& nodes, const std::vector<HostSlots>& hosts) const {
  const auto key = [&](int node) {
    return std::pair(place(hosts.at(static_cast<size_t>(node)).host), node);
  };
  std::sort(nodes.begin(), nodes.end(), [&](int a, int b) { return key(a) < key(b); });
}

void HostWatch::note_there(milliseconds passed, const std::map<int, std::string>& nodes) {
  if (arrivals_.size() > kMaxKnown) arrivals_.clear();
  std::erase_if(there_, [&](const auto& entry) { return nodes.count(entry.first) == 0; });
  for (const auto& [node, name] : nodes) {
    const auto [found, is_new] = there_.emplace(node, Node{name});
    if (is_new) ++arrivals_[name];
    milliseconds& there = found->second.there;
    const bool was_long = there >= kLong * try_again_;
    there += passed;
    if (!was_long && there >= kLong * try_again_) arrivals_.erase(name);
  }
}

int HostWatch::arrivals_of(int node) const {
  const auto there = there_.find(node);
  if (there == there_.end()) return 0;
  const auto found = arrivals_.find(there->second.name);
  return found == arrivals_.end() ? 0 : found->second;
}

bool HostWatch::has_stayed(int node, milliseconds stay) const {
  const auto there = there_.find(node);
  return there != there_.end() && there->second.there >= stay * doubled(arrivals_of(node) - 1);
}

std::vector<HostSlots> HostWatch::to_try(milliseconds passed,
                                         const std::function<bool(const HostSlots&)>& is_trying) {
  std::vector<HostSlots> found;
  for (const HostSlots& wanted : wanted_) {
    Host& host = known_[wanted.host];
    if (is_trying(wanted)) {
      host.missing = milliseconds(0);
      host.busy += passed;
      if (host.busy >= kLong * try_again_) host.tries = 0;
      continue;
    }
    host.busy = milliseconds(0);
    host.missing += passed;
    if (host.missing < try_again_ * doubled(host.tries)) continue;
    host.missing = milliseconds(0);
    ++host.tries;
    found.push_back(wanted);
  }
  return found;
}

}  // namespace zeroth::launcher
