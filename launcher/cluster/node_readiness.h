// The node readiness check: whether all nodes can run their part of a job, and if not, which and
// why. One message lists all problems before any rank starts. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/transport/messages.h"

namespace zeroth::launcher {

class NodeReadiness {
 public:
  // `hosts` are the nodes' names. `version` is Zeroth's version here.
  NodeReadiness(std::vector<std::string> hosts, std::string version);

  // Adds a node; returns its index.
  int add(const std::string& name);

  // Forgets all about this node except its name, for another attempt to connect.
  void reset(int node) { at(node) = {name(node)}; }

  // Compares nodes with this one while it is ready, otherwise with the first node that is.
  void compare_with(int node) { reference_ = node; }

  // Records an agent that has connected. Returns why it is rejected; empty if it is accepted.
  std::string on_hello(const Hello& hello);
  void on_ready(int node, const Ready& ready) { at(node).ready = ready; }
  void on_problems(int node, const Problems& problems);
  // Records that the process that started the node's agent has exited, or that the connection has
  // ended. A node that has already reported problems keeps them.
  void on_node_lost(int node, const std::string& why);
  // Expects a new answer of this node.
  void recheck(int node);
  // Marks the nodes that have not answered yet as lost.
  void give_up(const std::string& why);

  bool has_connected(int node) const { return at(node).connected; }
  bool all_connected() const;  // or lost
  bool is_complete() const;    // each node is ready or has failed
  bool is_ready(int node) const { return at(node).ready.has_value(); }
  bool has_answered(int node) const { return at(node).answered(); }
  std::vector<std::string> unanswered() const;  // names of the nodes that have not answered yet
  // Returns whether the node is ready and has no problems(), conflicts with other nodes included.
  bool is_usable(int node) const { return is_ready(node) && problems(node).empty(); }
  int num_nodes() const { return static_cast<int>(hosts_.size()); }
  const std::string& name(int node) const { return at(node).name; }
  // Returns the answer of a node that is ready.
  const Ready& ready(int node) const { return *at(node).ready; }

  // Returns, until all nodes have answered: "waiting for an agent on b, c: 8 s so far, up to 60 s;
  // 1 of 3 hosts has answered".
  std::string describe_waiting(std::chrono::milliseconds waited,
                               std::chrono::milliseconds limit) const;
  // Returns the problems of all nodes once the check is complete; empty: none.
  std::string error() const;
  // Returns the problems of one node.
  std::vector<std::string> problems(int node) const;
  // Returns whether the node is the same machine as a node before it and would use its GPUs.
  bool has_gpu_conflict(int node) const { return !gpu_conflicts(at(node)).empty(); }
  // Returns a line for each machine that several of these nodes share. The nodes must be ready.
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
  // Returns how the node differs from the reference node.
  std::vector<std::string> differences(const NodeCheck& host) const;
  // Returns the GPUs that the node would share with a node before it on the same machine.
  std::vector<std::string> gpu_conflicts(const NodeCheck& host) const;

  std::vector<NodeCheck> hosts_;
  std::string version_;
  std::optional<int> reference_;
};

// Describes a node that does not answer in time.
std::string describe_timeout(std::chrono::milliseconds limit);

}  // namespace zeroth::launcher
