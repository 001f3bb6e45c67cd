#include "launcher/cluster/gathering.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "launcher/cluster/own_addresses.h"
#include "launcher/run/find_program.h"

namespace zeroth::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStartersEnd{5'000}, kLetGo{1'000};

std::vector<std::string> names_of(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> names;
  for (const HostSlots& host : hosts) names.push_back(host.host);
  return names;
}

}  // namespace

Gathering::Gathering(boost::asio::io_context& io, const GatheringRequest& request)
    : io_(io),
      request_(request),
      roll_(names_of(request.hosts), ZEROTH_VERSION),
      names_(names_of(request.hosts)),
      starters_(io, names_, own_folder(),
                {[this](const std::string& line) { request_.say(line); },
                 [this](const auto& hosts, bool failed, const std::string& how) {
                   on_start_end(hosts, failed, how);
                 }}),
      limit_(io) {}

GatheringStopped::GatheringStopped(int signal)
    : Error("stopped by {}", signal_name(signal)), signal_(signal) {}

Gathered Gathering::run() {
  const OwnAddresses own = own_addresses_towards(names_);
  if (own.addresses.empty())
    throw Error("no address of this machine reaches the hosts: {}", fmt::join(names_, ", "));
  if (!own.unknown.empty())
    request_.say(
        fmt::format("note: this machine does not know the address of {}: the launcher listens at "
                    "all of its own",
                    fmt::join(own.unknown, ", ")));
  listener_ = std::make_unique<Listener>(
      io_, own.addresses, HmacKey(secret_),
      [this](std::shared_ptr<Channel> channel) { on_agent(std::move(channel)); });
  commands_ = request_.agents(listener_->endpoints(), secret_);
  before_left_ = commands_.before.size();
  start(before_left_ > 0 ? commands_.before : commands_.agents);
  limit_.start(request_.limit, [this] {
    roll_.give_up(fmt::format("no answer of an agent there within {} s",
                              std::chrono::duration<double>(request_.limit).count()));
    check();
  });
  boost::asio::signal_set signals(io_, SIGINT, SIGTERM);
  signals.async_wait([this](boost::system::error_code error, int signal) {
    if (error) return;
    stopped_by_ = signal;
    io_.stop();
  });
  check();
  io_.run();
  io_.restart();
  limit_.cancel();
  only_show_lines();
  listener_->close();
  const std::string refused = describe(listener_->refused());
  if (!refused.empty()) request_.say("warning: " + refused);
  const std::string complaint = roll_.complaint();
  if (stopped_by_ != 0 || !complaint.empty()) {
    let_go();
    if (stopped_by_ != 0) throw GatheringStopped(stopped_by_);
    throw Error("{}", complaint);
  }
  for (const auto& agent : came_)  // an agent that never said which one
    if (!is_known(agent)) agent->close();
  Gathered gathered;
  for (size_t i = 0; i < names_.size(); ++i) {
    const int node = static_cast<int>(i);
    gathered.hosts.push_back({roll_.ready(node), agents_.at(node)});
  }
  return gathered;
}

void Gathering::start(const std::vector<AgentCommand>& commands) {
  for (const AgentCommand& command : commands) {
    try {
      starters_.start(command);
    } catch (const Error& error) {
      on_start_end(command.hosts, true, error.what());
    }
  }
}

void Gathering::on_start_end(const std::vector<int>& hosts, bool failed, const std::string& how) {
  if (before_left_ > 0) {
    --before_left_;
    before_failed_ |= failed;
    for (const int node : hosts)
      if (failed) roll_.on_lost(node, how);
    if (before_left_ > 0) return;
    if (!before_failed_) return start(commands_.agents);
    io_.stop();  // the others have not been asked
    return;
  }
  for (const int node : hosts)
    if (!roll_.has_come(node)) roll_.on_lost(node, how);
  check();
}

void Gathering::on_agent(std::shared_ptr<Channel> channel) {
  const auto node = std::make_shared<int>(-1);
  const auto agent = std::make_shared<WatchedChannel>(io_, std::move(channel), request_.job.silence,
                                                      WatchedChannel::Handlers{});
  agent->set_handlers({[this, node, plain = std::weak_ptr(agent)](const Message& message) {
                         if (const auto known = plain.lock()) on_message(known, *node, message);
                       },
                       [this, node](const std::string& why) {
                         if (*node >= 0) roll_.on_lost(*node, "its agent is lost: " + why);
                         check();
                       }});
  came_.push_back(agent);
}

void Gathering::on_message(const std::shared_ptr<WatchedChannel>& agent, int& node,
                           const Message& message) {
  if (const auto* hello = std::get_if<Hello>(&message); hello != nullptr && node < 0)
    return on_hello(agent, node, *hello);
  const auto* ready = std::get_if<Ready>(&message);
  const auto* problems = std::get_if<Problems>(&message);
  if (node < 0 || (ready == nullptr && problems == nullptr))
    throw Error("it said what no agent says now");
  agent->excuse(false);
  if (ready != nullptr) roll_.on_ready(node, *ready);
  if (problems != nullptr) roll_.on_problems(node, *problems);
  check();
}

void Gathering::on_hello(const std::shared_ptr<WatchedChannel>& agent, int& node,
                         const Hello& hello) {
  const std::string refusal = roll_.on_hello(hello);
  if (refusal.empty()) {
    node = hello.node;
    agents_[node] = agent;
    RemoteJob job = request_.job;
    job.slots = request_.hosts[static_cast<size_t>(node)].slots;
    agent->send(job);
    agent->excuse(true);  // it looks around, and says nothing meanwhile; limit_ has an eye on it
  } else {
    request_.say(fmt::format("warning: an agent is sent away: {}", refusal));
    agent->close();
  }
  check();
}

bool Gathering::is_known(const std::shared_ptr<WatchedChannel>& agent) const {
  return std::any_of(agents_.begin(), agents_.end(),
                     [&](const auto& entry) { return entry.second == agent; });
}

void Gathering::check() {
  if (roll_.all_have_come()) listener_->close();
  if (roll_.is_complete()) io_.stop();
}

void Gathering::let_go() {
  for (const auto& agent : came_) agent->close();
  set_say([](const std::string&) {});  // that they are let go
  end_starters(kLetGo);
  clean_up();
}

// Best effort: the error that is on its way says more than that this failed too.
void Gathering::clean_up() {
  for (const AgentCommand& command : commands_.clean_up) {
    const auto& hosts = command.hosts;
    const bool needed = std::any_of(hosts.begin(), hosts.end(),
                                    [this](int node) { return agents_.count(node) == 0; });
    if (needed) start({command});
  }
  end_starters(kStartersEnd);
}

void Gathering::set_say(std::function<void(const std::string&)> say) {
  request_.say = std::move(say);
}

// How a job ends is told by its agents: that what started one has ended must not stop `io`, by
// which the last lines are still on their way.
void Gathering::only_show_lines() {
  starters_.set_handlers({[this](const std::string& line) { request_.say(line); },
                          [](const auto&, bool, const auto&) {}});
}

void Gathering::end_starters(milliseconds limit) {
  only_show_lines();
  io_.restart();
  starters_.when_ended(limit, [this] { io_.stop(); });
  io_.run();
}

}  // namespace zeroth::launcher
