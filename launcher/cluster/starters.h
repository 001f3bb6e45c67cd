// The processes that start agents: ssh, pdsh, mpirun, srun. What they print is shown, and where one
// ends its last line says why.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/cluster/node_backend.h"
#include "launcher/run/rank_process.h"
#include "launcher/run/rank_stream.h"
#include "launcher/run/running_timer.h"

namespace zeroth::launcher {

// Callbacks run in the io_context's thread. They die with the calling thread, and by the end of
// this.
class Starters {
 public:
  struct Handlers {
    // A line of one of them, with its host before it where it has a single one.
    std::function<void(const std::string&)> on_line;
    // One has ended: whose agents it should have started, whether it failed, and how it ended.
    std::function<void(const std::vector<int>& hosts, bool failed, const std::string& how)> on_end;
  };

  // `hosts`: their names. `own_folder`: that of zeroth itself.
  Starters(boost::asio::io_context& io, std::vector<std::string> hosts,
           std::filesystem::path own_folder, Handlers handlers);
  Starters(const Starters&) = delete;
  Starters& operator=(const Starters&) = delete;
  ~Starters();

  // Throws ProgramError where a program is not there.
  void start(const AgentCommand& command);
  // One more, numbered behind those that are known.
  void add_host(const std::string& name) { hosts_.push_back(name); }
  void set_handlers(Handlers handlers) { handlers_ = std::move(handlers); }
  // Calls back when none runs, or after `limit`, when those that do are ended by SIGKILL.
  void when_ended(std::chrono::milliseconds limit, std::function<void()> callback);

 private:
  class Output;
  struct Starter;

  void wait_for_children();
  void look();

  boost::asio::io_context& io_;
  std::vector<std::string> hosts_;
  std::filesystem::path own_folder_;
  Handlers handlers_;
  boost::asio::signal_set children_;
  RunningTimer limit_;
  std::vector<std::unique_ptr<Starter>> starters_;
  std::function<void()> when_ended_;
};

}  // namespace zeroth::launcher
