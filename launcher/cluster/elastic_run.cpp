#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine/signals.h"
#include "base/machine/timer.h"
#include "base/text/units.h"
#include "launcher/cluster/launch_multi_node.h"
#include "launcher/cluster/multi_node_attempt.h"
#include "launcher/cluster/node_tracker.h"
#include "launcher/cluster/rendezvous_state.h"
#include "launcher/run/program_arguments.h"
#include "launcher/run/restart_policy.h"
#include "launcher/run/suspendable_timer.h"

namespace zeroth::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{100};
constexpr milliseconds kQuietPeriod{3'000};  // wait without log lines

class ElasticRun {
 public:
  explicit ElasticRun(const MultiNodeConfig& config)
      : config_(config),
        elastic_(*config.elastic),
        signals_(io_),
        timer_(io_),
        agents_(io_, config.agents, config.hosts, [this] { update_state(); }),
        watch_(config.hosts, elastic_.retry_interval),
        policy_(make_run_id(), elastic_.max_restarts) {
    for (const int signal : termination_signals()) signals_.add(signal);
    agents_.set_find_free_index([this](const std::string& name) { return find_free_index(name); });
  }

  JobOutcome run() {
    wait_for_signals();
    agents_.start();
    tick();
    JobOutcome outcome;
    try {
      outcome = run_attempts();
    } catch (...) {
      timer_.cancel();
      attempt_.reset();
      agents_.shutdown_agents(1, "its launcher has failed");
      agents_.shutdown();
      throw;
    }
    timer_.cancel();
    agents_.warn_of_refused();
    agents_.stop_accepting();
    agents_.shutdown_agents(to_exit_code(outcome, elastic_.requeue_code), "");
    agents_.end_launch_processes();
    return outcome;
  }

 private:
  JobOutcome run_attempts() {
    while (wait_for_quorum()) {
      JobOutcome outcome = run_attempt();
      if (signal_ != 0 && outcome.end == JobEnd::kRestartRequested) return stopped_by(signal_);
      if (has_new_checkpoint(last_checkpoint_, elastic_.newest_checkpoint()))
        policy_.reset_restarts();
      if (!policy_.try_restart(outcome,
                               outcome.end == JobEnd::kRestartRequested ? restart_reason_ : "")) {
        const std::string why = policy_.no_restart_reason(outcome);
        if (!why.empty()) outcome.message += "\nzeroth: " + why;
        return outcome;
      }
      if (!outcome.message.empty()) config_.log_outcome(outcome.message);
      restart_reason_.clear();
    }
    return signal_ != 0 ? stopped_by(signal_) : quorum_failure();
  }

  // Returns false without a quorum, or if a signal came.
  bool wait_for_quorum() {
    action_ = RendezvousAction::kWait;
    slow_ = SlowWait(kQuietPeriod);
    drop_leaving();
    waited_ = since_quorum_ = milliseconds(0);
    io_.restart();
    if (policy_.current().index > 0) recheck_all();
    update_state();
    if (*action_ == RendezvousAction::kWait && signal_ == 0) io_.run();
    check_first_round();
    const bool starts = action_ == RendezvousAction::kStart && signal_ == 0;
    action_.reset();
    return starts;
  }

  // Asks connected nodes again about their readiness and a free port.
  void recheck_all() {
    const NodeReadiness& readiness = agents_.readiness();
    for (int node = 0; node < readiness.num_nodes(); ++node) {
      if (agents_.is_connected(node))
        agents_.recheck_node(node);
      else if (readiness.is_ready(node) && reported_nodes_.insert(node).second)
        agents_.drop_agent(node, "it was lost");  // the outcome reports it
    }
  }

  // Must be called after every change.
  void update_state() {
    drop_unusable();
    if (attempt_) return request_restart();
    if (!action_) return;
    action_ = next_action(elastic_.hosts, rendezvous_state(), last_call(), elastic_.join_timeout);
    const bool is_all = policy_.current().index == 0 && !config_.agents.join_port &&
                        agents_.readiness().is_complete() && rendezvous_state().num_pending == 0;
    if (is_all && !has_quorum(usable()) && !first_round_error().empty())
      action_ = RendezvousAction::kGiveUp;
    if (*action_ != RendezvousAction::kWait) io_.stop();
  }

  // Shuts down unusable agents, so that their nodes can be retried.
  void drop_unusable() {
    const NodeReadiness& readiness = agents_.readiness();
    for (int node = 0; node < readiness.num_nodes(); ++node) {
      // Nodes with ranks were ready at the start. In a GPU conflict the first node may be lost, and
      // the second the same machine that has returned: this is visible after the attempt.
      if (attempt_ && (attempt_->has(node) || readiness.has_gpu_conflict(node))) continue;
      const std::vector<std::string> problems = readiness.problems(node);
      if (problems.empty() || !reported_nodes_.insert(node).second) continue;
      const std::string text = fmt::format("{}", fmt::join(problems, "; "));
      if (std::exchange(reported_[readiness.name(node)], text) != text)
        agents_.log_throttled(fmt::format("host {} is excluded: {}", readiness.name(node), text));
      if (agents_.is_connected(node)) agents_.drop_agent(node, text);
    }
  }

  // Returns why nodes that have all answered cannot start the first attempt; empty: more may come.
  std::string first_round_error() const {
    const int64_t nodes = std::ssize(attempt_candidates());
    const std::string error = agents_.readiness().error();
    if (!error.empty() && !config_.agents.join_port) return error;
    return nodes < elastic_.hosts.max ? "" : describe_shortage(quorum_count(), nodes);
  }

  void check_first_round() const {
    if (policy_.current().index > 0 || *action_ != RendezvousAction::kGiveUp || signal_ != 0)
      return;
    if (const std::string error = first_round_error(); !error.empty()) throw Error("{}", error);
  }

  JobOutcome run_attempt() {
    const RestartAttempt& current = policy_.current();
    attempt_ = std::make_unique<MultiNodeAttempt>(
        io_, config_, agents_, next_attempt_nodes(), current,
        [this](const std::vector<int>& nodes, int signal) { return on_leaving(nodes, signal); });
    last_checkpoint_ = elastic_.newest_checkpoint();
    if (current.index > 0)
      agents_.log_note(fmt::format("round {} on {} with {} ({})", current.index,
                                   pluralize(std::ssize(attempt_->nodes()), "host"),
                                   pluralize(attempt_->num_ranks(), "rank"),
                                   policy_.describe_restarts()));
    agents_.compare_with(attempt_->nodes().front());
    io_.restart();
    const JobOutcome outcome = attempt_->run();
    attempt_.reset();
    io_.restart();
    return outcome;
  }

  void request_restart() {
    if (!restart_reason_.empty() || signal_ != 0) return;
    std::vector<int> joined = next_attempt_nodes();
    std::erase_if(joined, [this](int node) {
      return attempt_->has(node) || !watch_.is_stable(node, elastic_.stable_time);
    });
    std::vector<int> nodes = attempt_->nodes();
    if (joined.empty() || std::ssize(nodes) >= elastic_.hosts.max) return;
    nodes.insert(nodes.end(), joined.begin(), joined.end());
    if (num_assigned(nodes) <= attempt_->num_ranks()) return;  // they wait as spares
    restart_reason_ = describe_joined(agents_.names(joined));
    attempt_->request_restart(restart_reason_ + ": the ranks save and restart with it");
  }

  bool on_leaving(const std::vector<int>& nodes, int signal) {
    std::vector<int> staying = usable();
    std::erase_if(staying, [&](int node) {
      return leaving_.count(node) > 0 || std::count(nodes.begin(), nodes.end(), node) > 0;
    });
    if (!has_quorum(staying)) return false;
    for (const int node : nodes) leaving_[node] = signal;
    const std::string why = describe_signaled(agents_.names(nodes), signal);
    if (!restart_reason_.empty()) {
      agents_.log_note(why + ": the run continues without it");
    } else {
      restart_reason_ = why;
      attempt_->request_restart(why + ", no other host was: the ranks save and restart without it");
    }
    return true;
  }

  void drop_leaving() {
    for (const auto& [node, signal] : std::exchange(leaving_, {})) {
      reported_nodes_.insert(node);
      agents_.drop_agent(node, "it was sent " + signal_name(signal), 128 + signal);
    }
  }

  // Returns a node that was added later, is gone, and has no ranks.
  std::optional<int> find_free_index(const std::string& name) {
    for (int node = static_cast<int>(config_.hosts.size()); node < agents_.readiness().num_nodes();
         ++node) {
      if (agents_.host(node).host != name || agents_.is_connected(node)) continue;
      if (!agents_.readiness().has_answered(node) || (attempt_ && attempt_->has(node))) continue;
      reported_nodes_.erase(node);
      silent_for_.erase(node);
      return node;
    }
    return std::nullopt;
  }

  void tick() {
    timer_.start(kTick, [this] {
      tick();
      give_up_silent();
      const bool quorum = has_quorum(usable());
      waited_ += kTick;
      since_quorum_ = quorum ? since_quorum_ + kTick : milliseconds(0);
      since_poll_ += kTick;
      update_present();
      if (action_ && slow_.due(waited_)) log_waiting(quorum);
      if (since_poll_ >= elastic_.poll_interval) poll_hosts();
      update_state();
    });
  }

  void give_up_silent() {
    for (int node = 0; node < agents_.readiness().num_nodes(); ++node) {
      if (agents_.readiness().has_answered(node)) {
        silent_for_.erase(node);
      } else if ((silent_for_[node] += kTick) >= config_.answer_timeout) {
        agents_.drop_agent(node, describe_timeout(config_.answer_timeout));
      }
    }
  }

  void update_present() {
    std::map<int, std::string> nodes;
    for (const int node : usable())  // later nodes may share the name of an initial one
      nodes[node] = fmt::format("{} {} {}", node < std::ssize(config_.hosts),
                                agents_.host(node).host, agents_.readiness().ready(node).machine);
    watch_.update_present(kTick, nodes);
  }

  void log_waiting(bool quorum) {
    agents_.log_note(describe_waiting(quorum_count(), quorum ? last_call() : elastic_.join_timeout,
                                      agents_.readiness().unanswered()));
  }

  // Reads the hostfile again and retries missing hosts.
  void poll_hosts() {
    try {
      if (elastic_.poll_hosts) watch_.set_hostfile(elastic_.poll_hosts());
    } catch (const Error& error) {
      const std::string text = error.what();
      if (std::exchange(reported_[""], text) != text)
        agents_.log(fmt::format("warning: the list of hosts is unchanged: {}", text));
    }
    const auto is_pending = [this](const HostSlots& host) {
      for (int node = 0; node < agents_.readiness().num_nodes(); ++node)
        if (agents_.host(node).host == host.host &&
            (agents_.is_connected(node) || !agents_.readiness().has_answered(node)))
          return true;
      return false;
    };
    for (const HostSlots& host : watch_.hosts_to_retry(since_poll_, is_pending)) agents_.add(host);
    since_poll_ = milliseconds(0);
  }

  std::vector<int> usable() const {
    std::vector<int> nodes;
    for (int node = 0; node < agents_.readiness().num_nodes(); ++node)
      if (agents_.is_connected(node) && agents_.readiness().is_usable(node) &&
          watch_.is_eligible(agents_.host(node)))
        nodes.push_back(node);
    watch_.sort(nodes, agents_.hosts());
    return nodes;
  }

  RendezvousState rendezvous_state() const {
    const NodeReadiness& readiness = agents_.readiness();
    const std::vector<int> nodes = usable();
    RendezvousState rendezvous_state{.num_usable = static_cast<int>(nodes.size()),
                                     .has_ranks = num_assigned(nodes) > 0,
                                     .num_pending = static_cast<int>(readiness.unanswered().size()),
                                     .waited = waited_,
                                     .since_quorum = since_quorum_};
    if (policy_.current().index == 0) {
      const int to_come = static_cast<int>(config_.hosts.size()) + elastic_.expected_joiners -
                          readiness.num_nodes();
      rendezvous_state.num_pending += std::max(0, to_come);
    }
    return rendezvous_state;
  }

  milliseconds last_call() const {
    return policy_.current().index == 0 ? elastic_.last_call : elastic_.restart_last_call;
  }

  // Returns the usable nodes of the next attempt.
  std::vector<int> next_attempt_nodes() const {
    std::vector<int> nodes = usable();
    const auto is_flapping = [this](int node) {
      return watch_.is_flapping(node) && !watch_.is_stable(node, elastic_.stable_time);
    };
    std::vector<int> steady = nodes;
    std::erase_if(steady, is_flapping);
    if (has_quorum(steady)) nodes = std::move(steady);
    return up_to_max(std::move(nodes));
  }

  // Returns the first of these nodes, up to the maximum.
  std::vector<int> up_to_max(std::vector<int> nodes) const {
    nodes.resize(std::min(nodes.size(), static_cast<size_t>(elastic_.hosts.max)));
    return nodes;
  }
  std::vector<int> attempt_candidates() const { return up_to_max(usable()); }

  // Returns how many ranks an attempt on the first of these nodes would have.
  int num_assigned(const std::vector<int>& nodes) const {
    return sum_of(assign_ranks(agents_.num_slots(up_to_max(nodes)), elastic_.model_parallel));
  }

  // Returns whether these nodes are enough to start.
  bool has_quorum(const std::vector<int>& nodes) const {
    return std::ssize(nodes) >= elastic_.hosts.min && num_assigned(nodes) > 0;
  }

  // Returns what a quorum is still short of, hosts before ranks.
  QuorumCount quorum_count() const {
    const std::vector<int> nodes = attempt_candidates();
    if (std::ssize(nodes) < elastic_.hosts.min || num_assigned(nodes) > 0)
      return {.available = std::ssize(nodes), .needed = elastic_.hosts.min};
    return count_ranks(agents_.num_slots(nodes), elastic_.model_parallel);
  }

  JobOutcome quorum_failure() const {
    const auto there = agents_.names(attempt_candidates());
    return {
        .status = elastic_.requeue_code,
        .message = describe_missing_quorum(quorum_count(), there, waited_, elastic_.requeue_code),
        .end = JobEnd::kFailed};
  }

  // Also passes signals to running ranks, which ends the job.
  void wait_for_signals() {
    signals_.async_wait([this](boost::system::error_code error, int signal) {
      if (error) return;
      if (signal_ == 0) signal_ = signal;
      attempt_ ? attempt_->on_signal(signal) : io_.stop();
      wait_for_signals();
    });
  }

  const MultiNodeConfig& config_;
  const ElasticConfig& elastic_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  SuspendableTimer timer_;
  AgentPool agents_;
  NodeTracker watch_;
  RestartPolicy policy_;
  milliseconds waited_{0}, since_quorum_{0}, since_poll_{0};
  SlowWait slow_;
  std::optional<RendezvousAction> action_;  // of the current rendezvous; empty: ranks run
  std::unique_ptr<MultiNodeAttempt> attempt_;
  std::string restart_reason_;                   // why an attempt ends without a failure
  std::map<int, int> leaving_;                   // nodes that received a signal, and which
  std::string last_checkpoint_;                  // the newest checkpoint when the attempt began
  std::map<std::string, std::string> reported_;  // last problems by host name
  std::set<int> reported_nodes_;                 // nodes whose problems were reported
  std::map<int, milliseconds> silent_for_;       // nodes that have not answered yet
  int signal_ = 0;
};

}  // namespace

JobOutcome run_elastic(const MultiNodeConfig& config) {
  return ElasticRun(config).run();
}

}  // namespace zeroth::launcher
