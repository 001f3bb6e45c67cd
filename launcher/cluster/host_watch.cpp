#include "launcher/cluster/host_watch.h"

#include <algorithm>
#include <utility>

namespace zeroth::launcher {

using std::chrono::milliseconds;

HostWatch::HostWatch(const std::vector<HostSlots>& hosts, milliseconds try_again)
    : try_again_(try_again) {
  set_wanted(hosts);
}

void HostWatch::set_wanted(const std::vector<HostSlots>& hosts) {
  for (const HostSlots& host : hosts)
    if (ever_.insert(host.host).second && !wanted_.empty())
      missing_for_[host.host] = try_again_;  // new ones at once
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

std::vector<HostSlots> HostWatch::to_try(milliseconds passed,
                                         const std::function<bool(const HostSlots&)>& is_trying) {
  std::vector<HostSlots> found;
  for (const HostSlots& host : wanted_) {
    milliseconds& missing = missing_for_[host.host];
    if (is_trying(host)) {
      missing = milliseconds(0);
      continue;
    }
    missing += passed;
    if (missing < try_again_) continue;
    missing = milliseconds(0);
    found.push_back(host);
  }
  return found;
}

}  // namespace zeroth::launcher
