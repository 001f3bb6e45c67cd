// Which hosts an elastic run wants, and when one that is not there is tried again. Pure.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/cluster/nodes.h"

namespace zeroth::launcher {

class HostWatch {
 public:
  // `hosts`: those of the start, which are tried by whoever starts. `try_again`: between the first
  // two tries.
  HostWatch(const std::vector<HostSlots>& hosts, std::chrono::milliseconds try_again);

  // As the hostfile has them now. Those that no longer stand there get no ranks in the next round.
  void set_wanted(const std::vector<HostSlots>& hosts);
  // Also those that have come by themselves, which stand in no hostfile.
  bool is_wanted(const HostSlots& host) const;
  // In the order of the hostfile; then those that have come by themselves, by their numbers.
  // `hosts`: of all numbers.
  void sort(std::vector<int>& nodes, const std::vector<HostSlots>& hosts) const;

  // Which nodes can run ranks now, each with a name that it has again when it comes again; `passed`
  // has gone by since the last call.
  void note_there(std::chrono::milliseconds passed, const std::map<int, std::string>& nodes);
  // Whether a node has been there so long that it seems to stay: `stay`, and twice as long each
  // time that one of its name has come, until one has stayed for long.
  bool has_stayed(int node, std::chrono::milliseconds stay) const;
  // It has come and gone more than once lately.
  bool is_restless(int node) const { return arrivals_of(node) >= kRestless; }

  // Hosts to be tried now, when `passed` has gone by since the last call. `is_trying`: there
  // already, or on its way. The pause between two tries doubles up to 16 times the first one, until
  // the host has stayed for long.
  std::vector<HostSlots> to_try(std::chrono::milliseconds passed,
                                const std::function<bool(const HostSlots&)>& is_trying);

 private:
  static constexpr int kRestless = 3;

  int arrivals_of(int node) const;
  size_t place(const std::string& name) const;  // the number of hosts where it is none of them

  std::vector<HostSlots> wanted_;
  std::set<std::string> ever_;  // hosts that ever stood in the hostfile
  std::chrono::milliseconds try_again_;
  struct Host {
    std::chrono::milliseconds missing{0}, busy{0};  // since it was last tried, or there
    int tries = 0;                                  // since it last stayed for long
  };
  std::map<std::string, Host> known_;  // of the hostfile
  struct Node {
    std::string name;
    std::chrono::milliseconds there{0};  // since it has come
  };
  std::map<int, Node> there_;
  std::map<std::string, int> arrivals_;  // by name, since one stayed for long
};

}  // namespace zeroth::launcher
