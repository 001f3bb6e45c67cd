// The agents of a run's nodes: AgentPool starts them, accepts their connections, and checks whether
// each node can run its ranks.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/backends/hostfile.h"
#include "launcher/backends/launch_processes.h"
#include "launcher/backends/node_backend.h"
#include "launcher/cluster/node_readiness.h"
#include "launcher/machine/local_addresses.h"
#include "launcher/transport/heartbeat_channel.h"
#include "launcher/transport/listener.h"
#include "launcher/transport/messages.h"

namespace zeroth::launcher {

struct AgentPoolOptions {
  RemoteJob job;  // without the slots
  // Returns the commands that start the agents of `hosts`, given the launcher's endpoints and the
  // secret.
  std::function<AgentCommands(const std::vector<HostSlots>& hosts, const std::string& launcher,
                              const std::string& secret)>
      make_commands;
  std::function<void(const std::string&)> log;  // receives lines for the user
  bool quiet = false;                           // suppresses notes
  std::string secret = make_secret();           // of the run
  std::optional<int> join_port = {};            // port at which nodes join by themselves
  std::string join_address = {};  // address for `join_port`; empty: all addresses of this machine
};

// LogThrottle passes a line, and passes the same one again only after a pause, which doubles from a
// minute to an hour. It reads no clock: the caller passes the time.
class LogThrottle {
 public:
  // Returns the line to log at the time `now`, with the number of times it was suppressed since the
  // last one; empty if it repeats too soon.
  std::optional<std::string> pass(const std::string& line, std::chrono::milliseconds now);

 private:
  struct ThrottledLine {
    std::chrono::milliseconds last, pause;
    int held_back = 0;
  };

  std::map<std::string, ThrottledLine> lines_;
};

// AgentPool indexes nodes in the order in which they are added. A node that returns gets a new
// index, or the one that `set_find_free_index` finds. Callbacks run in the io_context's thread.
class AgentPool {
 public:
  // Calls `on_change` after every change of readiness().
  AgentPool(boost::asio::io_context& io, const AgentPoolOptions& request,
            std::vector<HostSlots> hosts, std::function<void()> on_change);
  AgentPool(const AgentPool&) = delete;
  AgentPool& operator=(const AgentPool&) = delete;

  // Listens, and starts the agents of all nodes. Throws Error.
  void start();
  // Returns the index of a node of this name that is lost for good, for reuse by the node that
  // joins; without reuse memory would grow with each attempt. Empty: there is none.
  using FindFreeIndex = std::function<std::optional<int>(const std::string& name)>;
  void set_find_free_index(FindFreeIndex find) { find_free_index_ = std::move(find); }
  // Adds a node and starts its agent. The backend must start this node's agent with a command of
  // its own.
  int add(const HostSlots& host);
  // Asks the agent of a connected node again whether the node can still run its ranks.
  void recheck_node(int node);
  // Returns whether a setup command failed, so that no agents are started.
  bool has_setup_failed() const { return setup_failed_ && num_setup_left_ == 0; }
  // Stops accepting agents of nodes that have not connected.
  void stop_accepting();
  // Ignores from now on how the processes that start agents exit; only the agents report about
  // nodes. Must not be called within a callback.
  void ignore_launch_exits();

  const NodeReadiness& readiness() const { return readiness_; }
  const HostSlots& host(int node) const { return hosts_.at(static_cast<size_t>(node)); }
  const std::vector<HostSlots>& hosts() const { return hosts_; }
  // Return the slots, and the names, of each of these nodes.
  std::vector<int> num_slots(const std::vector<int>& nodes) const;
  std::vector<std::string> names(const std::vector<int>& nodes) const;
  // Returns the agent of a node that has connected.
  const std::shared_ptr<HeartbeatChannel>& agent(int node) const { return agents_.at(node); }
  bool is_connected(int node) const;  // its agent has connected, and the connection is open
  // Shuts down the agent, which exits with `status`, and marks the node as lost. For a node that
  // another object observed as lost, or that the run no longer needs.
  void drop_agent(int node, const std::string& why, int status = 1);
  void give_up(const std::string& why);  // marks nodes that have not answered as lost
  void log(const std::string& line) const { request_.log(line); }
  // Logs the line unless notes are suppressed.
  void log_note(const std::string& line) const {
    if (!request_.quiet) log(line);
  }
  // Logs a line that may repeat many times; see LogThrottle.
  void log_throttled(const std::string& line);
  // Logs a warning once in a run.
  void warn_once(const std::string& warning) {
    if (warned_.insert(warning).second) log("warning: " + warning);
  }
  void set_log(std::function<void(const std::string&)> log) { request_.log = std::move(log); }

  // Logs a warning if connections were refused.
  void warn_of_refused() const;
  // Closes connections of agents that never identified their node.
  void close_unidentified();
  // Requires all nodes to match this one from now on, once it has answered.
  void compare_with(int node) { readiness_.compare_with(node); }
  // Tells each agent to exit with this status and to log `why` if it is not empty. Waits a short
  // time until they have exited.
  void shutdown_agents(int status, const std::string& why);
  // Closes all connections, ends the processes that start agents, and removes secrets on nodes.
  void shutdown();
  // Waits up to `limit` for the processes that started agents, then kills them. The agents must
  // have been shut down before.
  void end_launch_processes(std::chrono::milliseconds limit = std::chrono::milliseconds(5'000));

 private:
  LocalAddresses listen_addresses() const;
  int index_for(const HostSlots& host);
  void start(const std::vector<AgentCommand>& commands);
  void watch(const std::shared_ptr<HeartbeatChannel>& agent, int node);
  void on_launch_exit(const std::vector<int>& hosts, bool failed, const std::string& how);
  void on_agent(std::shared_ptr<Channel> channel);
  void on_message(const std::shared_ptr<HeartbeatChannel>& agent, int node, const Message& message);
  void on_hello(const std::shared_ptr<HeartbeatChannel>& agent, const Hello& hello);
  void on_join(const std::shared_ptr<HeartbeatChannel>& agent, const Join& join);
  void send_job(int node);
  void remove_node_secrets();

  boost::asio::io_context& io_;
  AgentPoolOptions request_;
  std::vector<HostSlots> hosts_;
  std::function<void()> on_change_;
  NodeReadiness readiness_;
  LaunchProcesses launch_processes_;
  AgentCommands commands_;
  size_t num_setup_left_ = 0;
  bool setup_failed_ = false;
  std::unique_ptr<Listener> listener_;
  std::vector<std::shared_ptr<HeartbeatChannel>> connections_;
  std::map<int, std::shared_ptr<HeartbeatChannel>> agents_;
  std::set<int> shutting_down_;  // nodes whose agents have received Shutdown
  std::set<std::string> warned_;
  FindFreeIndex find_free_index_;
  LogThrottle throttle_;
};

}  // namespace zeroth::launcher
