#include "launcher/cluster/agents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/run_path.h"
#include "base/units.h"
#include "launcher/cluster/joining.h"
#include "launcher/run/running_timer.h"

namespace zeroth::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStartersEnd{5'000}, kLetGo{1'000};
constexpr int kMostRanks = 1 << 16;  // that a host may offer
constexpr int kMaxPort = 65'535;

std::vector<std::string> names_of(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> names;
  for (const HostSlots& host : hosts) names.push_back(host.host);
  return names;
}

HostSlots offered(const Join& join) {
  if (join.num_ranks < 1 || join.num_ranks > kMostRanks)
    throw Error("it offers {} ranks", join.num_ranks);
  return {shortened(join.name), first_slots(join.num_ranks)};
}

}  // namespace

Agents::Agents(boost::asio::io_context& io, const AgentsRequest& request,
               std::vector<HostSlots> hosts, std::function<void()> on_change)
    : io_(io),
      request_(request),
      hosts_(std::move(hosts)),
      on_change_(std::move(on_change)),
      roll_(names_of(hosts_), ZEROTH_VERSION),
      starters_(io, names_of(hosts_), program_folder(),
                {[this](const std::string& line) { say_rarely(line); },
                 [this](const auto& ended, bool failed, const std::string& how) {
                   on_start_end(ended, failed, how);
                 }}) {}

OwnAddresses Agents::own_addresses() const {
  if (request_.join_port && request_.join_address.empty()) return {all_own_addresses(), {}};
  std::vector<std::string> names = names_of(hosts_);
  if (request_.join_port) names.push_back(request_.join_address);
  return own_addresses_towards(names);
}

void Agents::start() {
  const OwnAddresses own = own_addresses();
  if (own.addresses.empty())
    throw Error("no address of this machine reaches the hosts: {}",
                fmt::join(names_of(hosts_), ", "));
  if (!own.unknown.empty())
    note(
        fmt::format("note: this machine does not know the address of {}: the launcher listens at "
                    "all of its own",
                    fmt::join(own.unknown, ", ")));
  listener_ = std::make_unique<Listener>(
      io_, own.addresses, HmacKey(request_.secret),
      [this](std::shared_ptr<Channel> channel) { on_agent(std::move(channel)); },
      ListenerOptions{.port = request_.join_port.value_or(0)});
  commands_ = request_.commands(hosts_, listener_->endpoints(), request_.secret);
  before_left_ = commands_.before.size();
  start(before_left_ > 0 ? commands_.before : commands_.agents);
}

void Agents::say_rarely(const std::string& line) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  if (const auto text =
          repeated_.pass(line, std::chrono::duration_cast<std::chrono::milliseconds>(now)))
    request_.say(*text);
}

int Agents::number_for(const HostSlots& host) {
  const auto free = free_number_ ? free_number_(host.host) : std::nullopt;
  if (!free) {
    hosts_.push_back(host);
    starters_.add_host(host.host);
    return roll_.add(host.host);
  }
  hosts_.at(static_cast<size_t>(*free)) = host;
  roll_.renew(*free);
  agents_.erase(*free);
  lost_.erase(*free);
  return *free;
}

int Agents::add(const HostSlots& host) {
  const int node = number_for(host);
  for (const AgentCommand& command :
       request_.commands(hosts_, listener_->endpoints(), request_.secret).agents)
    if (command.hosts == std::vector<int>{node}) start({command});
  return node;
}

void Agents::start(const std::vector<AgentCommand>& commands) {
  for (const AgentCommand& command : commands) {
    try {
      starters_.start(command);
    } catch (const Error& error) {
      on_start_end(command.hosts, true, error.what());
    }
  }
}

void Agents::on_start_end(const std::vector<int>& hosts, bool failed, const std::string& how) {
  if (before_left_ > 0) {
    --before_left_;
    before_failed_ |= failed;
    for (const int node : hosts)
      if (failed) roll_.on_lost(node, how);
    if (before_left_ > 0) return;
    return before_failed_ ? on_change_() : start(commands_.agents);
  }
  for (const int node : hosts)
    if (!roll_.has_come(node)) roll_.on_lost(node, how);
  on_change_();
}

void Agents::on_agent(std::shared_ptr<Channel> channel) {
  const auto node = std::make_shared<int>(-1);
  const auto agent = std::make_shared<WatchedChannel>(io_, std::move(channel), request_.job.silence,
                                                      WatchedChannel::Handlers{});
  agent->set_handlers({[this, node, plain = std::weak_ptr(agent)](const Message& message) {
                         if (const auto known = plain.lock()) on_message(known, *node, message);
                       },
                       [](const std::string&) {}});
  std::erase_if(came_, [](const auto& other) { return !other->is_open(); });
  came_.push_back(agent);
}

void Agents::watch(int node) {
  const auto& agent = agents_.at(node);
  agent->set_handlers({[this, node, plain = std::weak_ptr(agent)](const Message& message) {
                         int known = node;
                         if (const auto self = plain.lock()) on_message(self, known, message);
                       },
                       [this, node](const std::string& why) {
                         roll_.on_lost(node, "its agent is lost: " + why);
                         on_change_();
                       }});
}

void Agents::on_message(const std::shared_ptr<WatchedChannel>& agent, int& node,
                        const Message& message) {
  if (const auto* hello = std::get_if<Hello>(&message); hello != nullptr && node < 0)
    return on_hello(agent, node, *hello);
  if (const auto* join = std::get_if<Join>(&message); join != nullptr && node < 0)
    return on_join(agent, node, *join);
  const auto* ready = std::get_if<Ready>(&message);
  const auto* problems = std::get_if<Problems>(&message);
  if (node < 0 || (ready == nullptr && problems == nullptr))
    throw Error("it said what no agent says now");
  if (ready != nullptr && (ready->master_port < 0 || ready->master_port > kMaxPort))
    throw Error("it offers port {}", ready->master_port);
  agent->excuse(false);
  if (ready != nullptr) roll_.on_ready(node, *ready);
  if (problems != nullptr) roll_.on_problems(node, *problems);
  on_change_();
}

void Agents::on_hello(const std::shared_ptr<WatchedChannel>& agent, int& node, const Hello& hello) {
  const std::string refusal = roll_.on_hello(hello);
  if (refusal.empty()) {
    node = hello.node;
    agents_[node] = agent;
    watch(node);
    send_job(node);
  } else {
    say_rarely(fmt::format("warning: an agent is sent away: {}", refusal));
    agent->close();
  }
  on_change_();
}

void Agents::on_join(const std::shared_ptr<WatchedChannel>& agent, int& node, const Join& join) {
  if (!request_.join_port) throw Error("it joins, but this run takes no hosts in (--join-port)");
  on_hello(agent, node, {.version = join.version, .node = number_for(offered(join))});
}

void Agents::send_job(int node) {
  RemoteJob job = request_.job;
  job.slots = host(node).slots;
  agents_.at(node)->send(job);
  // It looks around, and says nothing meanwhile; whoever waits for all answers has an end.
  agents_.at(node)->excuse(true);
}

void Agents::ask_again(int node) {
  roll_.look_again(node);
  watch(node);
  send_job(node);
}

void Agents::lose(int node, const std::string& why, int status) {
  if (is_there(node)) {
    agents_.at(node)->set_handlers({[](const Message&) {}, [](const std::string&) {}});
    agents_.at(node)->send(LetGo{.status = status, .why = why});  // upon which it closes
    lost_.insert(node);
  }
  roll_.on_lost(node, why);
}

bool Agents::is_there(int node) const {
  const auto found = agents_.find(node);
  return found != agents_.end() && found->second->is_open() && lost_.count(node) == 0;
}

void Agents::give_up(const std::string& why) {
  for (int node = 0; node < roll_.num_hosts(); ++node)
    if (is_there(node) && !roll_.has_answered(node)) agents_.at(node)->close();
  roll_.give_up(why);
  on_change_();
}

void Agents::close_door() {
  if (listener_) listener_->close();
}

std::string Agents::refused() const {
  return listener_ ? describe(listener_->refused()) : "";
}

void Agents::close_unknown() {
  for (const auto& agent : came_) {
    const auto is_known = [&](const auto& entry) { return entry.second == agent; };
    if (std::none_of(agents_.begin(), agents_.end(), is_known)) agent->close();
  }
}

void Agents::dismiss(int status, const std::string& why) {
  std::vector<std::shared_ptr<WatchedChannel>> open;
  for (const auto& [node, agent] : agents_)
    if (agent->is_open()) open.push_back(agent);
  size_t left = open.size();
  for (const auto& agent : open) {
    agent->set_handlers({[](const Message&) {},
                         [&](const std::string&) {
                           if (--left == 0) io_.stop();
                         }});
    agent->send(LetGo{status, why});
  }
  RunningTimer limit(io_);
  limit.start(kLetGo, [this] { io_.stop(); });
  io_.restart();
  if (left > 0) io_.run();
  for (const auto& agent : came_) agent->close();
}

void Agents::let_go() {
  for (const auto& agent : came_) agent->close();
  set_say([](const std::string&) {});  // that they are let go
  end_starters(kLetGo);
  clean_up();
}

// Best effort: the error that is on its way says more than that this failed too.
void Agents::clean_up() {
  for (const AgentCommand& command : commands_.clean_up) {
    const auto& of = command.hosts;
    const bool needed =
        std::any_of(of.begin(), of.end(), [this](int node) { return agents_.count(node) == 0; });
    if (needed) start({command});
  }
  end_starters(kStartersEnd);
}

void Agents::only_show_lines() {
  starters_.set_handlers({[this](const std::string& line) { request_.say(line); },
                          [](const auto&, bool, const auto&) {}});
}

void Agents::end_starters(milliseconds limit) {
  only_show_lines();
  io_.restart();
  starters_.when_ended(limit, [this] { io_.stop(); });
  io_.run();
}

}  // namespace zeroth::launcher
