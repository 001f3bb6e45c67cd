// Brings the agents of all hosts to the launcher, and finds out whether each host can run its
// ranks.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/cluster/listener.h"
#include "launcher/cluster/messages.h"
#include "launcher/cluster/node_backend.h"
#include "launcher/cluster/nodes.h"
#include "launcher/cluster/roll_call.h"
#include "launcher/cluster/starters.h"
#include "launcher/cluster/watched_channel.h"

namespace zeroth::launcher {

struct GatheringRequest {
  std::vector<HostSlots> hosts;
  RemoteJob job;  // but for the slots
  // What starts the agents, given where they reach the launcher and the secret.
  std::function<AgentStart(const std::string& launcher, const std::string& secret)> agents;
  std::chrono::milliseconds limit{60'000};  // for all hosts to answer
  std::function<void(const std::string&)> say;
};

struct Gathered {
  struct Host {
    Ready ready;
    std::shared_ptr<WatchedChannel> agent;
  };
  std::vector<Host> hosts;
};

// A signal has ended it.
class GatheringStopped : public Error {
 public:
  explicit GatheringStopped(int signal);
  int signal() const { return signal_; }

 private:
  int signal_;
};

class Gathering {
 public:
  Gathering(boost::asio::io_context& io, const GatheringRequest& request);
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  // Runs `io` until all hosts are ready. Throws an Error that names all that are not and why, and
  // GatheringStopped on SIGINT or SIGTERM; then no agent is left, nor a secret on a host.
  Gathered run();

  // Where the words of the processes that started agents go from now on.
  void set_say(std::function<void(const std::string&)> say);
  // Once agents have been let go: waits for these processes, and then kills them.
  void end_starters(std::chrono::milliseconds limit);

 private:
  void start(const std::vector<AgentCommand>& commands);
  void on_start_end(const std::vector<int>& hosts, bool failed, const std::string& how);
  void on_agent(std::shared_ptr<Channel> channel);
  void on_message(const std::shared_ptr<WatchedChannel>& agent, int& node, const Message& message);
  void on_hello(const std::shared_ptr<WatchedChannel>& agent, int& node, const Hello& hello);
  bool is_known(const std::shared_ptr<WatchedChannel>& agent) const;
  void check();
  void let_go();
  void clean_up();
  void only_show_lines();

  boost::asio::io_context& io_;
  GatheringRequest request_;
  std::string secret_ = make_secret();
  RollCall roll_;
  std::vector<std::string> names_;
  Starters starters_;
  AgentStart commands_;
  size_t before_left_ = 0;
  int stopped_by_ = 0;  // a signal
  bool before_failed_ = false;
  std::unique_ptr<Listener> listener_;
  std::vector<std::shared_ptr<WatchedChannel>> came_;
  std::map<int, std::shared_ptr<WatchedChannel>> agents_;
  RunningTimer limit_;
};

}  // namespace zeroth::launcher
