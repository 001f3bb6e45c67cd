#include "launcher/cluster/node_readiness.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text/diagnostics.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth::launcher {
namespace {

constexpr size_t kMaxListedNames = 16;

std::string join_some(std::vector<std::string> names) {
  const size_t more = names.size() - std::min(names.size(), kMaxListedNames);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

}  // namespace

NodeReadiness::NodeReadiness(std::vector<std::string> hosts, std::string version)
    : version_(std::move(version)) {
  for (std::string& name : hosts) hosts_.push_back({std::move(name)});
}

int NodeReadiness::add(const std::string& name) {
  hosts_.push_back({name});
  return num_nodes() - 1;
}

std::string NodeReadiness::on_hello(const Hello& hello) {
  if (hello.node < 0 || hello.node >= static_cast<int>(hosts_.size()))
    return fmt::format("agent {} connected, but there are {} hosts", hello.node, hosts_.size());
  NodeCheck& host = at(hello.node);
  if (host.connected) return fmt::format("a second agent of host {} connected", host.name);
  host.connected = true;
  if (hello.version == version_) return "";
  host.problems.push_back(
      fmt::format("it has Zeroth {}, the launcher is {}", shortened(hello.version), version_));
  return host.problems.back();
}

void NodeReadiness::on_problems(int node, const Problems& problems) {
  NodeCheck& host = at(node);
  for (const std::string& text : problems.texts) host.problems.push_back(text);
  if (problems.texts.empty()) host.problems.push_back("it cannot run ranks, for an unknown reason");
}

void NodeReadiness::on_node_lost(int node, const std::string& why) {
  NodeCheck& host = at(node);
  host.connected = true;  // it will not connect any more
  host.ready.reset();
  if (host.problems.empty()) host.problems.push_back(why);
}

void NodeReadiness::recheck(int node) {
  at(node).ready.reset();
  at(node).problems.clear();
}

void NodeReadiness::give_up(const std::string& why) {
  for (size_t node = 0; node < hosts_.size(); ++node)
    if (!hosts_[node].answered()) on_node_lost(static_cast<int>(node), why);
}

bool NodeReadiness::all_connected() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [](const NodeCheck& host) { return host.connected; });
}

bool NodeReadiness::is_complete() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [](const NodeCheck& host) { return host.answered(); });
}

std::vector<std::string> NodeReadiness::differences(const NodeCheck& host) const {
  const auto first = std::find_if(hosts_.begin(), hosts_.end(),
                                  [](const NodeCheck& other) { return other.ready; });
  std::vector<std::string> found;
  if (!host.ready || first == hosts_.end()) return found;
  if (reference_ && !at(*reference_).answered()) return found;  // the reference is not known yet
  const NodeCheck& other = reference_ && at(*reference_).ready ? at(*reference_) : *first;
  const Ready& its = *host.ready;
  const Ready& theirs = *other.ready;
  if (its.accelerator != theirs.accelerator)
    found.push_back(fmt::format("its ranks would use {}, those of {} {}: DS_ACCELERATOR sets it",
                                shortened(its.accelerator), other.name,
                                shortened(theirs.accelerator)));
  if (its.model == theirs.model) return found;
  if (its.model.empty() || theirs.model.empty()) {
    found.push_back(fmt::format("the folder of --model {}, unlike on {}",
                                its.model.empty() ? "is missing" : "exists", other.name));
  } else {
    found.push_back(
        fmt::format("the folder of --model is not the same as on {}: config.json or an index of "
                    "weights differs",
                    other.name));
  }
  return found;
}

std::vector<std::string> NodeReadiness::gpu_conflicts(const NodeCheck& host) const {
  std::vector<std::string> found;
  if (!host.ready || host.ready->machine.empty()) return found;
  for (const NodeCheck* other = hosts_.data(); other != &host; ++other) {
    if (!other->ready || other->ready->machine != host.ready->machine) continue;
    std::vector<std::string> twice;
    for (const std::string& gpu : host.ready->gpus)
      if (std::count(other->ready->gpus.begin(), other->ready->gpus.end(), gpu) > 0)
        twice.push_back(shortened(gpu));
    if (twice.empty()) continue;
    found.push_back(
        fmt::format("it is the same machine as {}, whose ranks already use GPU{} {} (--share-gpus "
                    "lets several ranks use one)",
                    other->name, twice.size() > 1 ? "s" : "", fmt::join(twice, ", ")));
  }
  return found;
}

std::vector<std::string> NodeReadiness::problems(int node) const {
  std::vector<std::string> all = at(node).problems;
  for (std::string& text : differences(at(node))) all.push_back(std::move(text));
  for (std::string& text : gpu_conflicts(at(node))) all.push_back(std::move(text));
  return all;
}

std::vector<std::string> NodeReadiness::same_machine_notes(const std::vector<int>& nodes) const {
  std::map<std::string, std::vector<std::string>> names;
  for (const int node : nodes)
    if (is_ready(node) && !ready(node).machine.empty())
      names[ready(node).machine].push_back(name(node));
  std::vector<std::string> notes;
  for (const auto& [machine, hosts] : names) {
    if (hosts.size() > 1)
      notes.push_back(
          fmt::format("hosts {} are the same machine: their ranks share its GPUs and cores",
                      fmt::join(hosts, " and ")));
  }
  return notes;
}

std::vector<std::string> NodeReadiness::unanswered() const {
  std::vector<std::string> names;
  for (const NodeCheck& host : hosts_)
    if (!host.answered()) names.push_back(host.name);
  return names;
}

std::string NodeReadiness::describe_waiting(std::chrono::milliseconds waited,
                                            std::chrono::milliseconds limit) const {
  std::vector<std::string> silent, busy;
  for (const NodeCheck& host : hosts_)
    if (!host.answered()) (host.connected ? busy : silent).push_back(host.name);
  const size_t answered = hosts_.size() - silent.size() - busy.size();
  std::vector<std::string> parts;
  if (!silent.empty()) parts.push_back(fmt::format("an agent on {}", join_some(std::move(silent))));
  if (!busy.empty())
    parts.push_back(
        fmt::format("{} to check program, model and slots", join_some(std::move(busy))));
  return fmt::format("waiting for {}: {} s so far, up to {} s; {} of {} {} answered",
                     fmt::join(parts, ", and for "), waited.count() / 1000, limit.count() / 1000,
                     answered, pluralize(std::ssize(hosts_), "host"),
                     answered == 1 ? "has" : "have");
}

std::string NodeReadiness::error() const {
  std::vector<std::string> all;
  int unable = 0;
  for (int node = 0; node < num_nodes(); ++node) {
    const std::vector<std::string> found = problems(node);
    if (!found.empty()) ++unable;
    for (const std::string& text : found)
      all.push_back(fmt::format("host {}: {}", name(node), text));
  }
  if (all.empty()) return "";
  if (all.size() == 1) return all[0];
  return fmt::format("{} of {} hosts cannot run their ranks:\n  {}", unable, num_nodes(),
                     listed(all));
}

std::string describe_timeout(std::chrono::milliseconds limit) {
  return fmt::format("no answer from an agent there within {} s",
                     std::chrono::duration<double>(limit).count());
}

}  // namespace zeroth::launcher
