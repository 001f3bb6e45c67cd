// Which hosts an elastic run wants, and when one that is not there is tried again. Pure.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/cluster/host_slots.h"

namespace zeroth::launcher {

class NodeTracker {
 public:
  // `hosts`: those of the start, which are tried by whoever starts. `retry_interval`: between the
  // first two tries.
  NodeTracker(const std::vector<HostSlots>& hosts, std::chrono::milliseconds retry_interval);

  // As the hostfile has them now. Those that no longer stand there get no ranks in the next round.
  void set_hostfile(const std::vector<HostSlots>& hosts);
  // Also those that have come by themselves, which stand in no hostfile.
  bool is_eligible(const HostSlots& host) const;
  // In the order of the hostfile; then those that have come by themselves, by their numbers.
  // `hosts`: of all numbers.
  void sort(std::vector<int>& nodes, const std::vector<HostSlots>& hosts) const;

  // Which nodes can run ranks now, each with a name that it has again when it comes again; `passed`
  // has gone by since the last call.
  void update_present(std::chrono::milliseconds passed, const std::map<int, std::string>& nodes);
  // Whether a node has been there so long that it seems to stay: `stay`, and twice as long each
  // time that one of its name has come, until one has stayed for long.
  bool is_stable(int node, std::chrono::milliseconds stable_time) const;
  // It has come and gone more than once lately.
  bool is_flapping(int node) const { return num_arrivals(node) >= kFlappingArrivals; }

  // Hosts to be tried now, when `passed` has gone by since the last call. `is_pending`: there
  // already, or on its way. The pause between two tries doubles up to 16 times the first one, until
  // the host has stayed for long.
  std::vector<HostSlots> hosts_to_retry(std::chrono::milliseconds passed,
                                        const std::function<bool(const HostSlots&)>& is_pending);

 private:
  static constexpr int kFlappingArrivals = 3;

  int num_arrivals(int node) const;
  size_t hostfile_index(
      const std::string& name) const;  // the number of hosts where it is none of them

  std::vector<HostSlots> hostfile_hosts_;
  std::set<std::string> ever_listed_;  // hosts that ever stood in the hostfile
  std::chrono::milliseconds retry_interval_;
  struct RetryState {
    std::chrono::milliseconds missing{0}, busy{0};  // since it was last tried, or there
    int tries = 0;                                  // since it last stayed for long
  };
  std::map<std::string, RetryState> retries_;  // of the hostfile
  struct PresentNode {
    std::string name;
    std::chrono::milliseconds present_for{0};  // since it has come
  };
  std::map<int, PresentNode> present_;
  std::map<std::string, int> arrivals_;  // by name, since one stayed for long
};

}  // namespace zeroth::launcher
