#include "launcher/cluster/roll_call.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/complaints.h"
#include "base/printable.h"
#include "base/units.h"

namespace zeroth::launcher {
namespace {

constexpr size_t kMaxNamed = 16;

std::string some_of(std::vector<std::string> names) {
  const size_t more = names.size() - std::min(names.size(), kMaxNamed);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

}  // namespace

RollCall::RollCall(std::vector<std::string> hosts, std::string version)
    : version_(std::move(version)) {
  for (std::string& name : hosts) hosts_.push_back({std::move(name)});
}

int RollCall::add(const std::string& name) {
  hosts_.push_back({name});
  return num_hosts() - 1;
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

void RollCall::look_again(int node) {
  at(node).ready.reset();
  at(node).problems.clear();
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
  if (reference_ && !at(*reference_).answered()) return found;  // nobody knows yet
  const Host& other = reference_ && at(*reference_).ready ? at(*reference_) : *first;
  const Ready& its = *host.ready;
  const Ready& theirs = *other.ready;
  if (its.accelerator != theirs.accelerator)
    found.push_back(fmt::format("its ranks would use {}, those of {} {}: DS_ACCELERATOR sets it",
                                shortened(its.accelerator), other.name,
                                shortened(theirs.accelerator)));
  if (its.model == theirs.model) return found;
  if (its.model.empty() || theirs.model.empty()) {
    found.push_back(fmt::format("the folder of --model is {}there, unlike on {}",
                                its.model.empty() ? "not " : "", other.name));
  } else {
    found.push_back(fmt::format(
        "the folder of --model is not that of {}: config.json or an index of weights differs",
        other.name));
  }
  return found;
}

std::vector<std::string> RollCall::gpus_of_others(const Host& host) const {
  std::vector<std::string> found;
  if (!host.ready || host.ready->machine.empty()) return found;
  for (const Host* other = hosts_.data(); other != &host; ++other) {
    if (!other->ready || other->ready->machine != host.ready->machine) continue;
    std::vector<std::string> twice;
    for (const std::string& gpu : host.ready->gpus)
      if (std::count(other->ready->gpus.begin(), other->ready->gpus.end(), gpu) > 0)
        twice.push_back(shortened(gpu));
    if (twice.empty()) continue;
    found.push_back(fmt::format(
        "it is one machine with {}, whose ranks have GPU{} {} already (--share-gpus lets several "
        "ranks use one)",
        other->name, twice.size() > 1 ? "s" : "", fmt::join(twice, ", ")));
  }
  return found;
}

std::vector<std::string> RollCall::problems(int node) const {
  std::vector<std::string> all = at(node).problems;
  for (std::string& text : differences(at(node))) all.push_back(std::move(text));
  for (std::string& text : gpus_of_others(at(node))) all.push_back(std::move(text));
  return all;
}

std::vector<std::string> RollCall::one_machine(const std::vector<int>& nodes) const {
  std::map<std::string, std::vector<std::string>> names;
  for (const int node : nodes)
    if (is_ready(node) && !ready(node).machine.empty())
      names[ready(node).machine].push_back(name(node));
  std::vector<std::string> told;
  for (const auto& [machine, hosts] : names) {
    if (hosts.size() > 1)
      told.push_back(fmt::format("hosts {} are one machine: their ranks share its GPUs and cores",
                                 fmt::join(hosts, " and ")));
  }
  return told;
}

std::vector<std::string> RollCall::unanswered() const {
  std::vector<std::string> names;
  for (const Host& host : hosts_)
    if (!host.answered()) names.push_back(host.name);
  return names;
}

bool RollCall::is_usable(int node) const {
  return at(node).ready && problems(node).empty();
}

std::string RollCall::waiting_text(std::chrono::milliseconds waited,
                                   std::chrono::milliseconds limit) const {
  std::vector<std::string> silent, busy;
  for (const Host& host : hosts_)
    if (!host.answered()) (host.come ? busy : silent).push_back(host.name);
  const size_t answered = hosts_.size() - silent.size() - busy.size();
  std::vector<std::string> parts;
  if (!silent.empty()) parts.push_back(fmt::format("an agent on {}", some_of(std::move(silent))));
  if (!busy.empty())
    parts.push_back(
        fmt::format("{} to look at program, model and slots", some_of(std::move(busy))));
  return fmt::format("waiting for {}: {} s by now, up to {} s; {} of {} {} answered",
                     fmt::join(parts, ", and for "), waited.count() / 1000, limit.count() / 1000,
                     answered, counted(std::ssize(hosts_), "host"), answered == 1 ? "has" : "have");
}

std::string RollCall::complaint() const {
  std::vector<std::string> all;
  int unable = 0;
  for (int node = 0; node < num_hosts(); ++node) {
    const std::vector<std::string> found = problems(node);
    if (!found.empty()) ++unable;
    for (const std::string& text : found)
      all.push_back(fmt::format("host {}: {}", name(node), text));
  }
  if (all.empty()) return "";
  if (all.size() == 1) return all[0];
  return fmt::format("{} of {} hosts cannot run their ranks:\n  {}", unable, num_hosts(),
                     listed(all));
}

std::string no_answer_within(std::chrono::milliseconds limit) {
  return fmt::format("no answer of an agent there within {} s",
                     std::chrono::duration<double>(limit).count());
}

}  // namespace zeroth::launcher
