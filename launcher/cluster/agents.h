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

#include "launcher/cluster/listener.h"
#include "launcher/cluster/messages.h"
#include "launcher/cluster/node_backend.h"
#include "launcher/cluster/nodes.h"
#include "launcher/cluster/own_addresses.h"
#include "launcher/cluster/repeated_lines.h"
#include "launcher/cluster/roll_call.h"
#include "launcher/cluster/starters.h"
#include "launcher/cluster/watched_channel.h"

namespace zeroth::launcher {

struct AgentsRequest {
  RemoteJob job;  // but for the slots
  // What starts the agents of hosts, given where they reach the launcher and the secret.
  std::function<AgentStart(const std::vector<HostSlots>& hosts, const std::string& launcher,
                           const std::string& secret)>
      commands;
  std::function<void(const std::string&)> say;  // lines for the user
  bool quiet = false;                           // notes are none of these
  std::string secret = make_secret();           // of the run
  std::optional<int> join_port = {};            // where hosts come by themselves
  std::string join_address = {};                // the same; empty: all of this machine's
};

// Hosts have numbers in the order in which they are added; one that comes again has a new one, or
// one that `set_free_number` finds.
// Callbacks run in the io_context's thread.
class Agents {
 public:
  // `on_change`: after anything that `roll` tells of.
  Agents(boost::asio::io_context& io, const AgentsRequest& request, std::vector<HostSlots> hosts,
         std::function<void()> on_change);
  Agents(const Agents&) = delete;
  Agents& operator=(const Agents&) = delete;

  // Listens, and starts the agents of all hosts. Throws Error.
  void start();
  // Finds the number of a host of this name that is gone for good, which the one that comes gets:
  // otherwise memory would grow with each try. Nothing: there is none.
  using FreeNumber = std::function<std::optional<int>(const std::string& name)>;
  void set_free_number(FreeNumber find) { free_number_ = std::move(find); }
  // One more host, whose agent is started. The command that does it must be for this host alone.
  int add(const HostSlots& host);
  // Whether the host that came can still run its ranks is asked of its agent again.
  void ask_again(int node);
  // What must run before agents are started has failed: these are not.
  bool is_hopeless() const { return before_failed_ && before_left_ == 0; }
  // Agents of hosts that have not come are not let in any more.
  void close_door();
  // What becomes of the processes that start agents changes nothing any more: hosts are told of by
  // their agents. Not within a callback.
  void only_show_lines();

  const RollCall& roll() const { return roll_; }
  const HostSlots& host(int node) const { return hosts_.at(static_cast<size_t>(node)); }
  const std::vector<HostSlots>& hosts() const { return hosts_; }
  // Of a host that has come.
  const std::shared_ptr<WatchedChannel>& agent(int node) const { return agents_.at(node); }
  bool is_there(int node) const;  // it has come, and its connection stands
  // It was lost while somebody else watched it, or it is not wanted any more.
  void lose(int node, const std::string& why, int status = 1);  // the agent's
  void give_up(const std::string& why);                         // those that have not answered
  void say(const std::string& line) const { request_.say(line); }
  // The same, unless nobody wants to hear of what is no warning.
  void note(const std::string& line) const {
    if (!request_.quiet) say(line);
  }
  // A line that may come again and again: see RepeatedLines.
  void say_rarely(const std::string& line);
  // The same line once in a run.
  void warn_once(const std::string& warning) {
    if (warned_.insert(warning).second) say("warning: " + warning);
  }
  void set_say(std::function<void(const std::string&)> say) { request_.say = std::move(say); }

  // What to tell of connections that were refused; empty: none was.
  std::string refused() const;
  // Agents that never said which host they are.
  void close_unknown();
  // Hosts must from now on be like this one, once it has answered.
  void compare_with(int node) { roll_.compare_with(node); }
  // Each agent ends by itself with this exit code, and says why where there is something to say;
  // waits for that, not for long.
  void dismiss(int status, const std::string& why);
  // Ends all: connections are closed, and what started agents and secrets on hosts are removed.
  void let_go();
  // Once agents have been let go: waits for the processes that started them, then kills them.
  void end_starters(std::chrono::milliseconds limit);

 private:
  OwnAddresses own_addresses() const;
  int number_for(const HostSlots& host);
  void start(const std::vector<AgentCommand>& commands);
  void watch(int node);
  void on_start_end(const std::vector<int>& hosts, bool failed, const std::string& how);
  void on_agent(std::shared_ptr<Channel> channel);
  void on_message(const std::shared_ptr<WatchedChannel>& agent, int& node, const Message& message);
  void on_hello(const std::shared_ptr<WatchedChannel>& agent, int& node, const Hello& hello);
  void on_join(const std::shared_ptr<WatchedChannel>& agent, int& node, const Join& join);
  void send_job(int node);
  void clean_up();

  boost::asio::io_context& io_;
  AgentsRequest request_;
  std::vector<HostSlots> hosts_;
  std::function<void()> on_change_;
  RollCall roll_;
  Starters starters_;
  AgentStart commands_;
  size_t before_left_ = 0;
  bool before_failed_ = false;
  std::unique_ptr<Listener> listener_;
  std::vector<std::shared_ptr<WatchedChannel>> came_;
  std::map<int, std::shared_ptr<WatchedChannel>> agents_;
  std::set<int> lost_;  // whose agents have been told to end
  std::set<std::string> warned_;
  FreeNumber free_number_;
  RepeatedLines repeated_;
};

}  // namespace zeroth::launcher
