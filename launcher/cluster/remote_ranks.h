// The ranks of several nodes, reached through the nodes' agents.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "launcher/run/job_ranks.h"
#include "launcher/run/suspendable_timer.h"
#include "launcher/transport/heartbeat_channel.h"

namespace zeroth::launcher {

struct RemoteNode {
  int node = 0;  // its index in the run
  std::string name;
  int first_rank = 0;
  int num_ranks = 0;
  std::shared_ptr<HeartbeatChannel> agent = {};
};

// RemoteRanks controls ranks through agents. A node is lost when its agent's connection ends or is
// silent; its ranks then count as ended.
class RemoteRanks final : public JobRanks {
 public:
  // Called when these nodes, but not the others or the launcher, received this signal. Returns
  // whether the job can continue without them.
  using OnLeaving = std::function<bool(const std::vector<int>& nodes, int signal)>;

  // `keep_agents` keeps the agents for another attempt; otherwise each is shut down when its node
  // is finished. `on_leaving` may be empty: then a signal to one node applies to the whole job.
  RemoteRanks(boost::asio::io_context& io, std::vector<RemoteNode> hosts, bool keep_agents = false,
              OnLeaving on_leaving = {});
  RemoteRanks(const RemoteRanks&) = delete;
  RemoteRanks& operator=(const RemoteRanks&) = delete;

  // Starts the ranks. `start` is without the fields that differ between nodes, except
  // terminal_columns, which applies to rank 0.
  void start(StartRanks start, RanksListener& listener);

  void signal(int signum) override { send_to_all(SignalRanks{signum}); }
  void record_signal() override;
  std::vector<SuspendedRank> find_suspended() const override;
  void suspend() override { send_to_all(Suspend{true}); }
  void resume() override { send_to_all(Suspend{false}); }
  void finish(std::function<void()> done) override;
  std::optional<int64_t> read_new_oom_kills() override;

 private:
  struct NodeStatus {
    RemoteNode node;
    std::vector<bool> ended;  // by rank of the node
    std::vector<SuspendedRank> stopped = {};
    int signals = 0;  // number of signals that its agent received
    bool is_leaving = false;
    bool finished = false;

    bool has(int rank) const {
      return rank >= node.first_rank && rank < node.first_rank + node.num_ranks;
    }
    bool mark_ended(int rank);  // false: it was marked before
  };

  void on(NodeStatus& host, const OutputLines& message);
  void on(NodeStatus& host, const RanksPolled& message);
  void on(NodeStatus& host, const SignalReceived& message);
  void on(NodeStatus& host, const Warning& message);
  void on(NodeStatus& host, const Drained& message);
  template <typename Other>
  void on(NodeStatus& host, const Other& message);

  bool was_signalled(const NodeStatus& host) const { return host.signals > signals_; }
  void start_leaving();
  void end_job(int signal);
  void on_node_lost(NodeStatus& host, const std::string& why);
  void give_up(NodeStatus& host, const std::string& why);
  void send_to_all(const Message& message);
  void check_finished();

  std::vector<std::unique_ptr<NodeStatus>> hosts_;
  SuspendableTimer finish_timer_;
  SuspendableTimer signal_window_timer_;
  bool keep_agents_;
  RanksListener* listener_ = nullptr;
  OnLeaving on_leaving_;
  bool awaiting_signals_ = false;  // whether the same signal reaches other nodes, too
  int last_signal_ = 0;
  int signals_ = 0;  // number of signals already reported
  std::optional<int64_t> oom_kills_;
  std::function<void()> on_finished_;
};

}  // namespace zeroth::launcher
