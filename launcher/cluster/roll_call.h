// Whether all hosts can run their part of a job, and if not, which and why: all that is wrong comes
// in one message, before any rank starts. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cluster/messages.h"

namespace zeroth::launcher {

class RollCall {
 public:
  // `hosts`: their names. `version`: of Zeroth here.
  RollCall(std::vector<std::string> hosts, std::string version);

  // An agent that has come. Returns why it is sent away; empty: it may stay.
  std::string on_hello(const Hello& hello);
  void on_ready(int node, const Ready& ready);
  void on_problems(int node, const Problems& problems);
  // What started its agent has ended, or its connection has. One that has already told of problems
  // keeps these.
  void on_lost(int node, const std::string& why);
  // Those that have not answered by now are lost too.
  void give_up(const std::string& why);

  bool has_come(int node) const { return at(node).come; }
  bool all_have_come() const;  // or never will
  bool is_complete() const;    // each host is ready or has failed
  // Of all ready hosts.
  const Ready& ready(int node) const { return *at(node).ready; }

  // When it is complete: what is wrong with which hosts; empty: nothing.
  std::string complaint() const;

 private:
  struct Host {
    std::string name;
    bool come = false;
    std::optional<Ready> ready = {};
    std::vector<std::string> problems = {};

    bool answered() const { return ready || !problems.empty(); }
  };

  Host& at(int node) { return hosts_.at(static_cast<size_t>(node)); }
  const Host& at(int node) const { return hosts_.at(static_cast<size_t>(node)); }
  // How it differs from the first host that is ready.
  std::vector<std::string> differences(const Host& host) const;

  std::vector<Host> hosts_;
  std::string version_;
};

}  // namespace zeroth::launcher
