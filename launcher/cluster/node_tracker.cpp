#include "launcher/cluster/node_tracker.h"

#include <algorithm>
#include <utility>

namespace zeroth::launcher {

using std::chrono::milliseconds;

namespace {

constexpr int kMaxDoublings = 4;
constexpr int kStableFactor = 10;     // times the pause between two attempts
constexpr size_t kMaxKnown = 10'000;  // nodes may join under any name

int backoff_factor(int times) {
  return 1 << std::clamp(times, 0, kMaxDoublings);
}

}  // namespace

NodeTracker::NodeTracker(const std::vector<HostSlots>& hosts, milliseconds retry_interval)
    : retry_interval_(retry_interval) {
  set_hostfile(hosts);
}

void NodeTracker::set_hostfile(const std::vector<HostSlots>& hosts) {
  for (const HostSlots& host : hosts)
    if (ever_listed_.insert(host.host).second && !hostfile_hosts_.empty())
      retries_[host.host].missing = retry_interval_;  // retries new hosts at once
  hostfile_hosts_ = hosts;
}

size_t NodeTracker::hostfile_index(const std::string& name) const {
  const auto found = std::find_if(hostfile_hosts_.begin(), hostfile_hosts_.end(),
                                  [&](const HostSlots& host) { return host.host == name; });
  return static_cast<size_t>(found - hostfile_hosts_.begin());
}

bool NodeTracker::is_eligible(const HostSlots& host) const {
  return ever_listed_.count(host.host) == 0 || hostfile_index(host.host) < hostfile_hosts_.size();
}

void NodeTracker::sort(std::vector<int>& nodes, const std::vector<HostSlots>& hosts) const {
  const auto key = [&](int node) {
    return std::pair(hostfile_index(hosts.at(static_cast<size_t>(node)).host), node);
  };
  std::sort(nodes.begin(), nodes.end(), [&](int a, int b) { return key(a) < key(b); });
}

void NodeTracker::update_present(milliseconds passed, const std::map<int, std::string>& nodes) {
  if (arrivals_.size() > kMaxKnown) arrivals_.clear();
  std::erase_if(present_, [&](const auto& entry) { return nodes.count(entry.first) == 0; });
  for (const auto& [node, name] : nodes) {
    const auto [found, is_new] = present_.emplace(node, PresentNode{name});
    if (is_new) ++arrivals_[name];
    milliseconds& present = found->second.present_for;
    const bool was_long = present >= kStableFactor * retry_interval_;
    present += passed;
    if (!was_long && present >= kStableFactor * retry_interval_) arrivals_.erase(name);
  }
}

int NodeTracker::num_arrivals(int node) const {
  const auto present = present_.find(node);
  if (present == present_.end()) return 0;
  const auto found = arrivals_.find(present->second.name);
  return found == arrivals_.end() ? 0 : found->second;
}

bool NodeTracker::is_stable(int node, milliseconds stable_time) const {
  const auto present = present_.find(node);
  return present != present_.end() &&
         present->second.present_for >= stable_time * backoff_factor(num_arrivals(node) - 1);
}

std::vector<HostSlots> NodeTracker::hosts_to_retry(
    milliseconds passed, const std::function<bool(const HostSlots&)>& is_pending) {
  std::vector<HostSlots> found;
  for (const HostSlots& wanted : hostfile_hosts_) {
    RetryState& host = retries_[wanted.host];
    if (is_pending(wanted)) {
      host.missing = milliseconds(0);
      host.busy += passed;
      if (host.busy >= kStableFactor * retry_interval_) host.tries = 0;
      continue;
    }
    host.busy = milliseconds(0);
    host.missing += passed;
    if (host.missing < retry_interval_ * backoff_factor(host.tries)) continue;
    host.missing = milliseconds(0);
    ++host.tries;
    found.push_back(wanted);
  }
  return found;
}

}  // namespace zeroth::launcher
