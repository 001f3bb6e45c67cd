// The hosts that an elastic run uses, and the schedule of reconnection attempts. Pure.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/backends/hostfile.h"

namespace zeroth::launcher {

class NodeTracker {
 public:
  // `hosts` are those of the start; the caller makes the first attempt. `retry_interval` is the
  // pause between the first two attempts.
  NodeTracker(const std::vector<HostSlots>& hosts, std::chrono::milliseconds retry_interval);

  // Sets the hosts that the hostfile lists now. Hosts that it no longer lists get no ranks in the
  // next attempt.
  void set_hostfile(const std::vector<HostSlots>& hosts);
  // Returns whether the host may get ranks: the hostfile lists it, or it joined by itself and was
  // never listed.
  bool is_eligible(const HostSlots& host) const;
  // Sorts nodes by the order of the hostfile; nodes that joined by themselves follow, by index.
  // `hosts` are indexed by node.
  void sort(std::vector<int>& nodes, const std::vector<HostSlots>& hosts) const;

  // Updates the nodes that can run ranks now, each with a name that it keeps when it returns;
  // `passed` is the time since the last call.
  void update_present(std::chrono::milliseconds passed, const std::map<int, std::string>& nodes);
  // Returns whether a node has been present for `stable_time`. The time doubles with each arrival
  // of the same name, until a node of that name has stayed for long.
  bool is_stable(int node, std::chrono::milliseconds stable_time) const;
  // Returns whether the node has come and gone repeatedly of late.
  bool is_flapping(int node) const { return num_arrivals(node) >= kFlappingArrivals; }

  // Returns the hosts to retry now; `passed` is the time since the last call. `is_pending` returns
  // whether a host is present or connecting. The pause between two attempts doubles up to 16 times
  // the first one, until the host has stayed for long.
  std::vector<HostSlots> hosts_to_retry(std::chrono::milliseconds passed,
                                        const std::function<bool(const HostSlots&)>& is_pending);

 private:
  static constexpr int kFlappingArrivals = 3;

  int num_arrivals(int node) const;
  size_t hostfile_index(const std::string& name) const;  // hostfile_hosts_.size() if missing

  std::vector<HostSlots> hostfile_hosts_;
  std::set<std::string> ever_listed_;  // all hosts that the hostfile has ever listed
  std::chrono::milliseconds retry_interval_;
  struct RetryState {
    std::chrono::milliseconds missing{0}, busy{0};  // since the last attempt or presence
    int tries = 0;                                  // since it last stayed for long
  };
  std::map<std::string, RetryState> retries_;  // of the hostfile's hosts
  struct PresentNode {
    std::string name;
    std::chrono::milliseconds present_for{0};  // since its arrival
  };
  std::map<int, PresentNode> present_;
  std::map<std::string, int> arrivals_;  // by name, since a node of that name last stayed for long
};

}  // namespace zeroth::launcher
