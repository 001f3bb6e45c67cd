#include "launcher/cluster/agent_pool.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files/run_path.h"
#include "base/scheduler_env.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "launcher/run/suspendable_timer.h"

namespace zeroth::launcher {
namespace {

using std::chrono::milliseconds;

constexpr int kUnidentified = -1;  // the node of an agent that has not said hello
constexpr milliseconds kShutdownLimit{1'000};
constexpr int kMaxOfferedRanks = 1 << 16;  // that a node may offer
// Of LogThrottle.
constexpr milliseconds kFirstPause{60'000}, kMaxPause{3'600'000};
constexpr size_t kMaxLines = 1000;

HostSlots offered_slots(const Join& join) {
  if (join.num_ranks < 1 || join.num_ranks > kMaxOfferedRanks)
    throw Error("it offers an invalid number of ranks: {}", join.num_ranks);
  return {shortened(join.name), first_slots(join.num_ranks)};
}

}  // namespace

AgentPool::AgentPool(boost::asio::io_context& io, const AgentPoolOptions& request,
                     std::vector<HostSlots> hosts, std::function<void()> on_change)
    : io_(io),
      request_(request),
      hosts_(std::move(hosts)),
      on_change_(std::move(on_change)),
      readiness_(host_names(hosts_), ZEROTH_VERSION),
      launch_processes_(io, host_names(hosts_), program_directory(),
                        {[this](const std::string& line) { log_throttled(line); },
                         [this](const auto& ended, bool failed, const std::string& how) {
                           on_launch_exit(ended, failed, how);
                         }}) {}

LocalAddresses AgentPool::listen_addresses() const {
  if (request_.join_port && request_.join_address.empty()) return {all_local_addresses(), {}};
  std::vector<std::string> names = host_names(hosts_);
  if (request_.join_port) names.push_back(request_.join_address);
  return local_addresses_for(names);
}

void AgentPool::start() {
  const LocalAddresses own = listen_addresses();
  if (own.addresses.empty())
    throw Error("no address of this machine reaches the hosts: {}",
                fmt::join(host_names(hosts_), ", "));
  if (!own.unknown.empty())
    log_note(
        fmt::format("note: this machine cannot resolve the address of {}: the launcher listens on "
                    "all of its own addresses",
                    fmt::join(own.unknown, ", ")));
  listener_ = std::make_unique<Listener>(
      io_, own.addresses, HmacKey(request_.secret),
      [this](std::shared_ptr<Channel> channel) { on_agent(std::move(channel)); },
      ListenerOptions{.port = request_.join_port.value_or(0)});
  commands_ = request_.make_commands(hosts_, listener_->endpoints(), request_.secret);
  num_setup_left_ = commands_.setup.size();
  start(num_setup_left_ > 0 ? commands_.setup : commands_.agents);
}

void AgentPool::log_throttled(const std::string& line) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  if (const auto text = throttle_.pass(line, std::chrono::duration_cast<milliseconds>(now)))
    request_.log(*text);
}

int AgentPool::index_for(const HostSlots& host) {
  const auto free = find_free_index_ ? find_free_index_(host.host) : std::nullopt;
  if (!free) {
    hosts_.push_back(host);
    launch_processes_.add_host(host.host);
    return readiness_.add(host.host);
  }
  hosts_.at(static_cast<size_t>(*free)) = host;
  readiness_.reset(*free);
  agents_.erase(*free);
  shutting_down_.erase(*free);
  return *free;
}

int AgentPool::add(const HostSlots& host) {
  const int node = index_for(host);
  for (const AgentCommand& command :
       request_.make_commands(hosts_, listener_->endpoints(), request_.secret).agents)
    if (command.hosts == std::vector<int>{node}) start({command});
  return node;
}

void AgentPool::start(const std::vector<AgentCommand>& commands) {
  for (const AgentCommand& command : commands) {
    try {
      launch_processes_.start(command);
    } catch (const Error& error) {
      on_launch_exit(command.hosts, true, error.what());
    }
  }
}

void AgentPool::on_launch_exit(const std::vector<int>& hosts, bool failed, const std::string& how) {
  if (num_setup_left_ > 0) {
    --num_setup_left_;
    setup_failed_ |= failed;
    for (const int node : hosts)
      if (failed) readiness_.on_node_lost(node, how);
    if (num_setup_left_ > 0) return;
    return setup_failed_ ? on_change_() : start(commands_.agents);
  }
  for (const int node : hosts)
    if (!readiness_.has_connected(node)) readiness_.on_node_lost(node, how);
  on_change_();
}

void AgentPool::on_agent(std::shared_ptr<Channel> channel) {
  const auto agent =
      std::make_shared<HeartbeatChannel>(io_, std::move(channel), request_.job.liveness_timeout,
                                         HeartbeatChannel::HeartbeatHandlers{});
  watch(agent, kUnidentified);
  std::erase_if(connections_, [](const auto& other) { return !other->is_open(); });
  connections_.push_back(agent);
}

void AgentPool::watch(const std::shared_ptr<HeartbeatChannel>& agent, int node) {
  agent->set_handlers({[this, node, plain = std::weak_ptr(agent)](const Message& message) {
                         if (const auto self = plain.lock()) on_message(self, node, message);
                       },
                       [this, node](const std::string& why) {
                         if (node == kUnidentified) return;
                         readiness_.on_node_lost(node, "its agent is lost: " + why);
                         on_change_();
                       }});
}

void AgentPool::on_message(const std::shared_ptr<HeartbeatChannel>& agent, int node,
                           const Message& message) {
  const bool is_identified = node != kUnidentified;
  if (const auto* hello = std::get_if<Hello>(&message); hello != nullptr && !is_identified)
    return on_hello(agent, *hello);
  if (const auto* join = std::get_if<Join>(&message); join != nullptr && !is_identified)
    return on_join(agent, *join);
  const auto* ready = std::get_if<Ready>(&message);
  const auto* problems = std::get_if<Problems>(&message);
  if (!is_identified || (ready == nullptr && problems == nullptr))
    throw Error("it sent an unexpected message");
  if (ready != nullptr && (ready->master_port < 0 || ready->master_port > kMaxPort))
    throw Error("it offers an invalid port: {}", ready->master_port);
  agent->suspend_liveness(false);
  if (ready != nullptr) readiness_.on_ready(node, *ready);
  if (problems != nullptr) readiness_.on_problems(node, *problems);
  on_change_();
}

void AgentPool::on_hello(const std::shared_ptr<HeartbeatChannel>& agent, const Hello& hello) {
  const std::string refusal = readiness_.on_hello(hello);
  if (refusal.empty()) {
    agents_[hello.node] = agent;
    watch(agent, hello.node);
    send_job(hello.node);
  } else {
    log_throttled(fmt::format("warning: rejected agent: {}", refusal));
    agent->close();
  }
  on_change_();
}

void AgentPool::on_join(const std::shared_ptr<HeartbeatChannel>& agent, const Join& join) {
  if (!request_.join_port)
    throw Error("it tried to join, but this run does not accept hosts (--join-port)");
  on_hello(agent, {.version = join.version, .node = index_for(offered_slots(join))});
}

void AgentPool::send_job(int node) {
  RemoteJob job = request_.job;
  job.slots = host(node).slots;
  agents_.at(node)->send(job);
  // The agent checks the node without sending heartbeats; the wait for all answers has a timeout of
  // its own.
  agents_.at(node)->suspend_liveness(true);
}

void AgentPool::recheck_node(int node) {
  readiness_.recheck(node);
  watch(agents_.at(node), node);
  send_job(node);
}

void AgentPool::drop_agent(int node, const std::string& why, int status) {
  if (is_connected(node)) {
    agents_.at(node)->set_handlers({});
    agents_.at(node)->send(Shutdown{.status = status, .why = why});  // which closes it
    shutting_down_.insert(node);
  }
  readiness_.on_node_lost(node, why);
}

std::vector<int> AgentPool::num_slots(const std::vector<int>& nodes) const {
  std::vector<int> numbers;
  for (const int node : nodes) numbers.push_back(static_cast<int>(std::ssize(host(node).slots)));
  return numbers;
}

std::vector<std::string> AgentPool::names(const std::vector<int>& nodes) const {
  std::vector<std::string> names;
  for (const int node : nodes) names.push_back(host(node).host);
  return names;
}

bool AgentPool::is_connected(int node) const {
  const auto found = agents_.find(node);
  return found != agents_.end() && found->second->is_open() && shutting_down_.count(node) == 0;
}

void AgentPool::give_up(const std::string& why) {
  for (int node = 0; node < readiness_.num_nodes(); ++node)
    if (is_connected(node) && !readiness_.has_answered(node)) agents_.at(node)->close();
  readiness_.give_up(why);
  on_change_();
}

void AgentPool::stop_accepting() {
  if (listener_) listener_->close();
}

void AgentPool::warn_of_refused() const {
  const std::string refused = describe(listener_->refused());
  if (!refused.empty()) log("warning: " + refused);
}

void AgentPool::close_unidentified() {
  for (const auto& agent : connections_) {
    const auto is_known = [&](const auto& entry) { return entry.second == agent; };
    if (std::none_of(agents_.begin(), agents_.end(), is_known)) agent->close();
  }
}

void AgentPool::shutdown_agents(int status, const std::string& why) {
  std::vector<std::shared_ptr<HeartbeatChannel>> open;
  for (const auto& [node, agent] : agents_)
    if (agent->is_open()) open.push_back(agent);
  size_t left = open.size();
  for (const auto& agent : open) {
    agent->set_handlers({.on_lost = [&](const std::string&) {
      if (--left == 0) io_.stop();
    }});
    agent->send(Shutdown{status, why});
  }
  SuspendableTimer limit(io_);
  limit.start(kShutdownLimit, [this] { io_.stop(); });
  io_.restart();
  if (left > 0) io_.run();
  for (const auto& agent : connections_) agent->close();
}

void AgentPool::shutdown() {
  for (const auto& agent : connections_) agent->close();
  set_log([](const std::string&) {});  // suppresses messages about the agents' shutdown
  end_launch_processes(kShutdownLimit);
  remove_node_secrets();
}

// Removes secrets as best effort: the error being reported matters more than a failure here.
void AgentPool::remove_node_secrets() {
  for (const AgentCommand& command : commands_.cleanup) {
    const auto& of = command.hosts;
    const bool needed =
        std::any_of(of.begin(), of.end(), [this](int node) { return agents_.count(node) == 0; });
    if (needed) start({command});
  }
  end_launch_processes();
}

void AgentPool::ignore_launch_exits() {
  launch_processes_.set_handlers({[this](const std::string& line) { request_.log(line); },
                                  [](const auto&, bool, const auto&) {}});
}

void AgentPool::end_launch_processes(milliseconds limit) {
  ignore_launch_exits();
  io_.restart();
  launch_processes_.when_ended(limit, [this] { io_.stop(); });
  io_.run();
}

std::optional<std::string> LogThrottle::pass(const std::string& line, milliseconds now) {
  if (lines_.size() >= kMaxLines) lines_.clear();
  const auto [found, is_new] = lines_.emplace(line, ThrottledLine{now, kFirstPause});
  if (is_new) return line;
  ThrottledLine& known = found->second;
  if (now - known.last < known.pause) {
    ++known.held_back;
    return std::nullopt;
  }
  known.last = now;
  known.pause = std::min(2 * known.pause, kMaxPause);
  const int held_back = std::exchange(known.held_back, 0);
  if (held_back == 0) return line;
  return fmt::format("{} (and {} more times since)", line, held_back);
}

}  // namespace zeroth::launcher
