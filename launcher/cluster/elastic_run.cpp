#include "launcher/cluster/elastic_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/end_signals.h"
#include "base/error.h"
#include "base/slow_wait.h"
#include "base/units.h"
#include "launcher/cluster/elastic_words.h"
#include "launcher/cluster/host_round.h"
#include "launcher/cluster/host_watch.h"
#include "launcher/cluster/turnout.h"
#include "launcher/run/committed.h"
#include "launcher/run/round.h"
#include "launcher/run/running_timer.h"

namespace zeroth::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{100}, kStartersEnd{5'000};
constexpr milliseconds kQuiet{3'000};  // in which nobody needs to be told of anything

class ElasticRun {
 public:
  explicit ElasticRun(const HostsLaunch& launch);

  JobOutcome run();

 private:
  JobOutcome go_through_rounds();
  bool gather();  // false: there are not enough hosts, or a signal came
  void ask_all();
  void consider();
  void check_first_round() const;
  JobOutcome run_round();
  void regroup();
  bool on_leaving(const std::vector<int>& nodes, int signal);
  void drop_leaving();
  std::optional<int> free_number(const std::string& name);

  void tick();
  void give_up_silent();
  void note_there();
  void say_that_it_waits(bool enough);
  void look_for_hosts();
  void drop_unable();
  std::vector<int> usable() const;
  Turnout turnout() const;
  milliseconds last_call() const {
    return rounds_.current().number == 0 ? plan_.last_call : plan_.next_call;
  }
  std::vector<int> with_ranks() const;  // the usable ones that the next round has
  JobOutcome too_few() const;
  JobOutcome stopped() const;
  void wait_for_signals();

  const HostsLaunch& launch_;
  const ElasticPlan& plan_;
  boost::asio::io_context io_;
  boost::asio::signal_set signals_;
  RunningTimer timer_;
  Agents agents_;
  HostWatch watch_;
  Rounds rounds_;
  milliseconds waited_{0}, since_enough_{0}, since_look_{0};
  SlowWait slow_;
  std::optional<NextStep> step_;  // of the hosts that are waited for; empty: ranks run
  std::unique_ptr<HostRound> round_;
  std::string why_regrouped_;                // why a round without a failure is ended
  std::map<int, int> leaving_;               // hosts that were sent a signal, and which
  std::string saved_;                        // the newest checkpoint when the round began
  std::map<std::string, std::string> told_;  // what is wrong, by the host's name
  std::set<int> told_of_;                    // the same, by its number
  std::map<int, milliseconds> silent_for_;   // hosts that have not answered yet
  int signal_ = 0;
};

ElasticRun::ElasticRun(const HostsLaunch& launch)
    : launch_(launch),
      plan_(*launch.elastic),
      signals_(io_),
      timer_(io_),
      agents_(io_, launch.agents, launch.hosts, [this] { consider(); }),
      watch_(launch.hosts, plan_.try_again),
      rounds_(make_run_id(), plan_.max_restarts) {
  for (const int signal : end_signals()) signals_.add(signal);
  agents_.set_free_number([this](const std::string& name) { return free_number(name); });
}

JobOutcome ElasticRun::run() {
  wait_for_signals();
  agents_.start();
  tick();
  JobOutcome outcome;
  try {
    outcome = go_through_rounds();
  } catch (...) {
    timer_.cancel();
    round_.reset();
    agents_.dismiss(1, "its launcher has failed");
    agents_.let_go();
    throw;
  }
  timer_.cancel();
  const std::string refused = agents_.refused();
  if (!refused.empty()) agents_.say("warning: " + refused);
  agents_.close_door();
  agents_.dismiss(exit_status(outcome, plan_.requeue_code), "");
  agents_.end_starters(kStartersEnd);
  return outcome;
}

JobOutcome ElasticRun::go_through_rounds() {
  while (gather()) {
    JobOutcome outcome = run_round();
    if (signal_ != 0 && outcome.end == JobEnd::kRegrouped) return stopped();
    if (has_saved_more(saved_, plan_.newest_checkpoint())) rounds_.forgive();
    if (!rounds_.go_on(outcome, outcome.end == JobEnd::kRegrouped ? why_regrouped_ : "")) {
      const std::string why = rounds_.why_no_more(outcome);
      if (!why.empty()) outcome.message += "\nzeroth: " + why;
      return outcome;
    }
    if (!outcome.message.empty()) launch_.tell(outcome.message);
    why_regrouped_.clear();
  }
  return signal_ != 0 ? stopped() : too_few();
}

bool ElasticRun::gather() {
  step_ = NextStep::kWait;
  slow_ = SlowWait(kQuiet);
  drop_leaving();
  waited_ = since_enough_ = milliseconds(0);
  io_.restart();
  if (rounds_.current().number > 0) ask_all();
  consider();
  if (*step_ == NextStep::kWait && signal_ == 0) io_.run();
  check_first_round();
  const bool enough = step_ == NextStep::kStart && signal_ == 0;
  step_.reset();
  return enough;
}

// Those that ran ranks, and spares: whether they still can, and which port is free now.
void ElasticRun::ask_all() {
  const RollCall& roll = agents_.roll();
  for (int node = 0; node < roll.num_hosts(); ++node) {
    if (agents_.is_there(node))
      agents_.ask_again(node);
    else if (roll.is_ready(node) && told_of_.insert(node).second)  // the round's outcome says why
      agents_.lose(node, "it was lost");
  }
}

// After all that changes.
void ElasticRun::consider() {
  drop_unable();
  if (round_) return regroup();
  if (!step_) return;
  step_ = next_step(plan_.hosts, turnout(), {last_call(), plan_.wait});
  const bool hopeless = rounds_.current().number == 0 && !launch_.agents.join_port &&
                        agents_.roll().is_complete() && !agents_.roll().complaint().empty() &&
                        std::ssize(usable()) < plan_.hosts.min;
  if (hopeless) step_ = NextStep::kGiveUp;
  if (*step_ != NextStep::kWait) io_.stop();
}

void ElasticRun::check_first_round() const {
  if (rounds_.current().number > 0 || *step_ != NextStep::kGiveUp || signal_ != 0) return;
  const std::string complaint = agents_.roll().complaint();
  if (!complaint.empty() && !launch_.agents.join_port) throw Error("{}", complaint);
}

// An agent that cannot run ranks is let go, so that its host can be tried again.
void ElasticRun::drop_unable() {
  const RollCall& roll = agents_.roll();
  for (int node = 0; node < roll.num_hosts(); ++node) {
    // What has ranks was content when they began. Of two that are one machine the first may be lost
    // already, and the second be what has come back: that is seen once the round is over.
    if (round_ && (round_->has(node) || roll.has_gpus_of_others(node))) continue;
    const std::vector<std::string> problems = roll.problems(node);
    if (problems.empty() || !told_of_.insert(node).second) continue;
    const std::string text = fmt::format("{}", fmt::join(problems, "; "));
    if (std::exchange(told_[roll.name(node)], text) != text)
      agents_.say_rarely(fmt::format("host {} takes no part: {}", roll.name(node), text));
    if (agents_.is_there(node)) agents_.lose(node, text);
  }
}

std::vector<int> ElasticRun::usable() const {
  std::vector<int> nodes;
  for (int node = 0; node < agents_.roll().num_hosts(); ++node)
    if (agents_.is_there(node) && agents_.roll().is_usable(node) &&
        watch_.is_wanted(agents_.host(node)))
      nodes.push_back(node);
  watch_.sort(nodes, agents_.hosts());
  return nodes;
}

Turnout ElasticRun::turnout() const {
  const RollCall& roll = agents_.roll();
  Turnout turnout{.usable = static_cast<int>(usable().size()),
                  .awaited = static_cast<int>(roll.unanswered().size()),
                  .waited = waited_,
                  .since_enough = since_enough_};
  if (rounds_.current().number == 0) {
    const int to_come = static_cast<int>(launch_.hosts.size()) + plan_.expected - roll.num_hosts();
    turnout.awaited += std::max(0, to_come);
  }
  return turnout;
}

std::vector<int> ElasticRun::with_ranks() const {
  std::vector<int> nodes = usable();
  const auto is_restless = [this](int node) {
    return watch_.is_restless(node) && !watch_.has_stayed(node, plan_.stay);
  };
  const auto steady = std::ssize(nodes) - std::count_if(nodes.begin(), nodes.end(), is_restless);
  if (steady >= plan_.hosts.min) std::erase_if(nodes, is_restless);
  nodes.resize(std::min(nodes.size(), static_cast<size_t>(plan_.hosts.max)));
  return nodes;
}

JobOutcome ElasticRun::run_round() {
  const Round& current = rounds_.current();
  round_ = std::make_unique<HostRound>(
      io_, launch_, agents_, with_ranks(), current,
      [this](const std::vector<int>& nodes, int signal) { return on_leaving(nodes, signal); });
  saved_ = plan_.newest_checkpoint();
  if (current.number > 0)
    agents_.note(fmt::format("round {} on {} with {} ({})", current.number,
                             counted(std::ssize(round_->nodes()), "host"),
                             counted(round_->num_ranks(), "rank"), rounds_.describe_restarts()));
  agents_.compare_with(round_->nodes().front());
  io_.restart();
  const JobOutcome outcome = round_->run();
  round_.reset();
  io_.restart();
  return outcome;
}

void ElasticRun::regroup() {
  if (!why_regrouped_.empty() || signal_ != 0) return;
  std::vector<std::string> names;
  for (const int node : with_ranks()) {
    if (!round_->has(node) && watch_.has_stayed(node, plan_.stay))
      names.push_back(agents_.host(node).host);
  }
  if (names.empty() || std::ssize(round_->nodes()) >= plan_.hosts.max) return;
  why_regrouped_ = have_come(names);
  round_->regroup(why_regrouped_ + ": the ranks save, and start again with it");
}

bool ElasticRun::on_leaving(const std::vector<int>& nodes, int signal) {
  const auto stays = [&](int node) {
    return leaving_.count(node) == 0 && std::count(nodes.begin(), nodes.end(), node) == 0;
  };
  const std::vector<int> all = usable();
  if (std::count_if(all.begin(), all.end(), stays) < plan_.hosts.min) return false;
  std::vector<std::string> names;
  for (const int node : nodes) {
    leaving_[node] = signal;
    names.push_back(agents_.host(node).host);
  }
  const std::string why = were_sent(names, signal);
  if (!why_regrouped_.empty()) {
    agents_.note(why + ": the run goes on without it");
  } else {
    why_regrouped_ = why;
    round_->regroup(why + ", no other: the ranks save, and start again without it");
  }
  return true;
}

void ElasticRun::drop_leaving() {
  for (const auto& [node, signal] : std::exchange(leaving_, {})) {
    told_of_.insert(node);
    agents_.lose(node, "it was sent " + signal_name(signal), 128 + signal);
  }
}

// Of hosts that were added later: one that is gone, and has no ranks.
std::optional<int> ElasticRun::free_number(const std::string& name) {
  for (int node = static_cast<int>(launch_.hosts.size()); node < agents_.roll().num_hosts();
       ++node) {
    if (agents_.host(node).host != name || agents_.is_there(node)) continue;
    if (!agents_.roll().has_answered(node) || (round_ && round_->has(node))) continue;
    told_of_.erase(node);
    silent_for_.erase(node);
    return node;
  }
  return std::nullopt;
}

void ElasticRun::tick() {
  timer_.start(kTick, [this] {
    tick();
    give_up_silent();
    const bool enough = std::ssize(usable()) >= plan_.hosts.min;
    waited_ += kTick;
    since_enough_ = enough ? since_enough_ + kTick : milliseconds(0);
    since_look_ += kTick;
    note_there();
    if (step_ && slow_.due(waited_)) say_that_it_waits(enough);
    if (since_look_ >= plan_.look_again) look_for_hosts();
    consider();
  });
}

void ElasticRun::give_up_silent() {
  for (int node = 0; node < agents_.roll().num_hosts(); ++node) {
    if (agents_.roll().has_answered(node)) {
      silent_for_.erase(node);
    } else if ((silent_for_[node] += kTick) >= launch_.limit) {
      agents_.lose(node, no_answer_within(launch_.limit));
    }
  }
}

void ElasticRun::note_there() {
  std::map<int, std::string> nodes;
  for (const int node : usable())  // others may have the name of one that is there from the start
    nodes[node] = fmt::format("{} {} {}", node < std::ssize(launch_.hosts), agents_.host(node).host,
                              agents_.roll().ready(node).machine);
  watch_.note_there(kTick, nodes);
}

void ElasticRun::say_that_it_waits(bool enough) {
  agents_.note(waits_for_more(usable().size(), plan_.hosts.min, enough ? last_call() : plan_.wait,
                              agents_.roll().unanswered()));
}

// Hosts that came to the hostfile, and those that are not there any more.
void ElasticRun::look_for_hosts() {
  try {
    if (plan_.look_for_hosts) watch_.set_wanted(plan_.look_for_hosts());
  } catch (const Error& error) {
    const std::string text = error.what();
    if (std::exchange(told_[""], text) != text)
      agents_.say(fmt::format("warning: hosts stay as they were: {}", text));
  }
  const auto is_trying = [this](const HostSlots& host) {
    for (int node = 0; node < agents_.roll().num_hosts(); ++node)
      if (agents_.host(node).host == host.host &&
          (agents_.is_there(node) || !agents_.roll().has_answered(node)))
        return true;
    return false;
  };
  for (const HostSlots& host : watch_.to_try(since_look_, is_trying)) agents_.add(host);
  since_look_ = milliseconds(0);
}

JobOutcome ElasticRun::too_few() const {
  std::vector<std::string> there;
  for (const int node : usable()) there.push_back(agents_.host(node).host);
  return {.status = plan_.requeue_code,
          .message = too_few_hosts(there, plan_.hosts.min, plan_.wait, plan_.requeue_code),
          .end = JobEnd::kFailed};
}

JobOutcome ElasticRun::stopped() const {
  return {.status = 128 + signal_,
          .message = "stopped by " + signal_name(signal_),
          .end = JobEnd::kStopped,
          .signal = signal_};
}

// While ranks run these go to them, too; a job then ends as it does by a signal.
void ElasticRun::wait_for_signals() {
  signals_.async_wait([this](boost::system::error_code error, int signal) {
    if (error) return;
    if (signal_ == 0) signal_ = signal;
    round_ ? round_->on_signal(signal) : io_.stop();
    wait_for_signals();
  });
}

}  // namespace

JobOutcome run_elastic(const HostsLaunch& launch) {
  return ElasticRun(launch).run();
}

}  // namespace zeroth::launcher
