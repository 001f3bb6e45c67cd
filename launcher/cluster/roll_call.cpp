#include "launcher/cluster/roll_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/complaints.h"
#include "base/printable.h"

namespace zeroth::launcher {

RollCall::RollCall(std::vector<std::string> hosts, std::string version)
    : version_(std::move(version)) {
  for (std::string& name : hosts) hosts_.push_back({std::move(name)});
}

std::string RollCall::on_hello(const Hello& hello) {
  if (hello.node < 0 || hello.node >= static_cast<int>(hosts_.size()))
    return fmt::format("agent {} came, but there are {} hosts", hello.node, hosts_.size());
  Host& host = at(hello.node);
  if (host.come) return fmt::format("a second agent of host {} came", host.name);
  host.come = true;
  if (hello.version == version_) return "";
  host.problems.push_back(
      fmt::format("it has Zeroth {}, the launcher is {}", shortened(hello.version), version_));
  return host.problems.back();
}

void RollCall::on_ready(int node, const Ready& ready) {
  at(node).ready = ready;
}

void RollCall::on_problems(int node, const Problems& problems) {
  Host& host = at(node);
  for (const std::string& text : problems.texts) host.problems.push_back(text);
  if (problems.texts.empty()) host.problems.push_back("it cannot run ranks, and does not say why");
}

void RollCall::on_lost(int node, const std::string& why) {
  Host& host = at(node);
  host.come = true;  // it will not come any more
  host.ready.reset();
  if (host.problems.empty()) host.problems.push_back(why);
}

void RollCall::give_up(const std::string& why) {
  for (size_t node = 0; node < hosts_.size(); ++node)
    if (!hosts_[node].answered()) on_lost(static_cast<int>(node), why);
}

bool RollCall::all_have_come() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.come; });
}

bool RollCall::is_complete() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [](const Host& host) { return host.answered(); });
}

std::vector<std::string> RollCall::differences(const Host& host) const {
  const auto first =
      std::find_if(hosts_.begin(), hosts_.end(), [](const Host& other) { return other.ready; });
  std::vector<std::string> found;
  if (!host.ready || first == hosts_.end()) return found;
  const Ready& its = *host.ready;
  const Ready& theirs = *first->ready;
  if (its.accelerator != theirs.accelerator)
    found.push_back(fmt::format("its ranks would use {}, those of {} {}: DS_ACCELERATOR sets it",
                                its.accelerator, first->name, theirs.accelerator));
  if (its.model == theirs.model) return found;
  if (its.model.empty() || theirs.model.empty()) {
    found.push_back(fmt::format("the folder of --model is {}there, unlike on {}",
                                its.model.empty() ? "not " : "", first->name));
  } else {
    found.push_back(fmt::format(
        "the folder of --model is not that of {}: config.json or an index of weights differs",
        first->name));
  }
  return found;
}

std::string RollCall::complaint() const {
  std::vector<std::string> all;
  size_t num_hosts = 0;
  for (const Host& host : hosts_) {
    std::vector<std::string> problems = host.problems;
    for (std::string& text : differences(host)) problems.push_back(std::move(text));
    if (!problems.empty()) ++num_hosts;
    for (const std::string& text : problems)
      all.push_back(fmt::format("host {}: {}", host.name, text));
  }
  if (all.empty()) return "";
  if (all.size() == 1) return all[0];
  return fmt::format("{} of {} hosts cannot run their ranks:\n  {}", num_hosts, hosts_.size(),
                     listed(all));
}

}  // namespace zeroth::launcher
