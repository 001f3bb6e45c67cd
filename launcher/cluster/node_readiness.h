// Whether all hosts can run their part of a job, and if not, which and why: all that is wrong comes
// in one message, before any rank starts. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/cluster/messages.h"

namespace zeroth::launcher {

class NodeReadiness {
 public:
  // `hosts`: their names. `version`: of Zeroth here.
  NodeReadiness(std::vector<std::string> hosts, std::string version);

  // One more host; its number.
  int add(const std::string& name);

  // Forgets what is known of this host but its name: it is tried again.
  void reset(int node) { at(node) = {name(node)}; }

  // Hosts are compared with this one, as long as it is ready; else with the first that is.
  void compare_with(int node) { reference_ = node; }

  // An agent that has come. Returns why it is sent away; empty: it may stay.
  std::string on_hello(const Hello& hello);
  void on_ready(int node, const Ready& ready);
  void on_problems(int node, const Problems& problems);
  // What started its agent has ended, or its connection has. One that has already told of problems
  // keeps these.
  void on_lost(int node, const std::string& why);
  // It is asked once more.
  void recheck(int node);
  // Those that have not answered by now are lost too.
  void give_up(const std::string& why);

  bool has_connected(int node) const { return at(node).connected; }
  bool all_connected() const;  // or never will
  bool is_complete() const;    // each host is ready or has failed
  bool is_ready(int node) const { return at(node).ready.has_value(); }
  bool has_answered(int node) const { return at(node).answered(); }
  std::vector<std::string> unanswered() const;  // names of the hosts that have not answered yet
  // Ready, and able to run beside the first that is.
  bool is_usable(int node) const;
  int num_nodes() const { return static_cast<int>(hosts_.size()); }
  const std::string& name(int node) const { return at(node).name; }
  // Of all ready hosts.
  const Ready& ready(int node) const { return *at(node).ready; }

  // While it is not complete: "waiting for an agent on b, c: 8 s by now, up to 60 s; 1 of 3 hosts
  // has answered".
  std::string describe_waiting(std::chrono::milliseconds waited,
                               std::chrono::milliseconds limit) const;
  // When it is complete: what is wrong with which hosts; empty: nothing.
  std::string error() const;
  // The same of one host.
  std::vector<std::string> problems(int node) const;
  // Whether one of these is that it is the machine of a host before it, and would use its GPUs.
  bool has_gpu_conflict(int node) const { return !gpu_conflicts(at(node)).empty(); }
  // Of hosts that are ready: which are one machine, a line for each such machine.
  std::vector<std::string> same_machine_notes(const std::vector<int>& nodes) const;

 private:
  struct NodeCheck {
    std::string name;
    bool connected = false;
    std::optional<Ready> ready = {};
    std::vector<std::string> problems = {};

    bool answered() const { return ready || !problems.empty(); }
  };

  NodeCheck& at(int node) { return hosts_.at(static_cast<size_t>(node)); }
  const NodeCheck& at(int node) const { return hosts_.at(static_cast<size_t>(node)); }
  // How it differs from the first host that is ready.
  std::vector<std::string> differences(const NodeCheck& host) const;
  // Whose GPUs it would have, where one before it is the same machine.
  std::vector<std::string> gpu_conflicts(const NodeCheck& host) const;

  std::vector<NodeCheck> hosts_;
  std::string version_;
  std::optional<int> reference_;
};

// What is wrong with a host that does not answer.
std::string describe_timeout(std::chrono::milliseconds limit);

}  // namespace zeroth::launcher
