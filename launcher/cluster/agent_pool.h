// The agents of a run's hosts: starts them, lets them in, and finds out whether each host can run
// its ranks.
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

#include "launcher/cluster/heartbeat_channel.h"
#include "launcher/cluster/host_slots.h"
#include "launcher/cluster/launch_processes.h"
#include "launcher/cluster/listener.h"
#include "launcher/cluster/local_addresses.h"
#include "launcher/cluster/log_throttle.h"
#include "launcher/cluster/messages.h"
#include "launcher/cluster/node_backend.h"
#include "launcher/cluster/node_readiness.h"

namespace zeroth::launcher {

struct AgentPoolOptions {
  RemoteJob job;  // but for the slots
  // What starts the agents of hosts, given where they reach the launcher and the secret.
  std::function<AgentCommands(const std::vector<HostSlots>& hosts, const std::string& launcher,
                              const std::string& secret)>
      make_commands;
  std::function<void(const std::string&)> log;  // lines for the user
  bool quiet = false;                           // notes are none of these
  std::string secret = make_secret();           // of the run
  std::optional<int> join_port = {};            // where hosts come by themselves
  std::string join_address = {};                // the same; empty: all of this machine's
};

// Hosts have numbers in the order in which they are added; one that comes again has a new one, or
// one that `set_find_free_index` finds.
// Callbacks run in the io_context's thread.
class AgentPool {
 public:
  // `on_change`: after anything that `roll` tells of.
  AgentPool(boost::asio::io_context& io, const AgentPoolOptions& request,
            std::vector<HostSlots> hosts, std::function<void()> on_change);
  AgentPool(const AgentPool&) = delete;
  AgentPool& operator=(const AgentPool&) = delete;

  // Listens, and starts the agents of all hosts. Throws Error.
  void start();
  // Finds the number of a host of this name that is gone for good, which the one that comes gets:
  // otherwise memory would grow with each try. Nothing: there is none.
  using FindFreeIndex = std::function<std::optional<int>(const std::string& name)>;
  void set_find_free_index(FindFreeIndex find) { find_free_index_ = std::move(find); }
  // One more host, whose agent is started. The command that does it must be for this host alone.
  int add(const HostSlots& host);
  // Whether the host that came can still run its ranks is asked of its agent again.
  void recheck_node(int node);
  // What must run before agents are started has failed: these are not.
  bool has_setup_failed() const { return setup_failed_ && num_setup_left_ == 0; }
  // Agents of hosts that have not come are not let in any more.
  void stop_accepting();
  // What becomes of the processes that start agents changes nothing any more: hosts are told of by
  // their agents. Not within a callback.
  void ignore_launch_exits();

  const NodeReadiness& readiness() const { return readiness_; }
  const HostSlots& host(int node) const { return hosts_.at(static_cast<size_t>(node)); }
  const std::vector<HostSlots>& hosts() const { return hosts_; }
  // Of a host that has come.
  const std::shared_ptr<HeartbeatChannel>& agent(int node) const { return agents_.at(node); }
  bool is_connected(int node) const;  // it has come, and its connection stands
  // It was lost while somebody else watched it, or it is not wanted any more.
  void drop_agent(int node, const std::string& why, int status = 1);  // the agent's
  void give_up(const std::string& why);  // those that have not answered
  void log(const std::string& line) const { request_.log(line); }
  // The same, unless nobody wants to hear of what is no warning.
  void log_note(const std::string& line) const {
    if (!request_.quiet) log(line);
  }
  // A line that may come again and again: see LogThrottle.
  void log_throttled(const std::string& line);
  // The same line once in a run.
  void warn_once(const std::string& warning) {
    if (warned_.insert(warning).second) log("warning: " + warning);
  }
  void set_log(std::function<void(const std::string&)> log) { request_.log = std::move(log); }

  // What to tell of connections that were refused; empty: none was.
  std::string refused() const;
  // Agents that never said which host they are.
  void close_unidentified();
  // Hosts must from now on be like this one, once it has answered.
  void compare_with(int node) { readiness_.compare_with(node); }
  // Each agent ends by itself with this exit code, and says why where there is something to say;
  // waits for that, not for long.
  void shut_down_agents(int status, const std::string& why);
  // Ends all: connections are closed, and what started agents and secrets on hosts are removed.
  void shut_down();
  // Once agents have been let go: waits for the processes that started them, then kills them.
  void end_launch_processes(std::chrono::milliseconds limit);

 private:
  LocalAddresses listen_addresses() const;
  int index_for(const HostSlots& host);
  void start(const std::vector<AgentCommand>& commands);
  void watch(int node);
  void on_launch_exit(const std::vector<int>& hosts, bool failed, const std::string& how);
  void on_agent(std::shared_ptr<Channel> channel);
  void on_message(const std::shared_ptr<HeartbeatChannel>& agent, int& node,
                  const Message& message);
  void on_hello(const std::shared_ptr<HeartbeatChannel>& agent, int& node, const Hello& hello);
  void on_join(const std::shared_ptr<HeartbeatChannel>& agent, int& node, const Join& join);
  void send_job(int node);
  void clean_up();

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
  std::set<int> shutting_down_;  // whose agents have been told to end
  std::set<std::string> warned_;
  FindFreeIndex find_free_index_;
  LogThrottle throttle_;
};

}  // namespace zeroth::launcher
