// The ranks of several hosts, behind the connections of these hosts' agents.
#pragma once

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "launcher/cluster/watched_channel.h"
#include "launcher/run/ranks.h"
#include "launcher/run/running_timer.h"

namespace zeroth::launcher {

struct RemoteHost {
  std::string name;
  int first_rank = 0;
  int num_ranks = 0;
  std::shared_ptr<WatchedChannel> agent = {};
};

// A host is lost when its agent's connection ends or is silent: its ranks then count as ended.
class RemoteRanks final : public Ranks {
 public:
  // Hosts of these numbers, and no others nor the launcher, were sent this signal. Returns whether
  // the job can go on without them.
  using OnLeaving = std::function<bool(const std::vector<size_t>& hosts, int signal)>;

  // `keep_agents`: for another round; else each is let go when its host is done. `on_leaving` may
  // be empty: then a signal to one host means the job.
  RemoteRanks(boost::asio::io_context& io, std::vector<RemoteHost> hosts, bool keep_agents = false,
              OnLeaving on_leaving = {});
  RemoteRanks(const RemoteRanks&) = delete;
  RemoteRanks& operator=(const RemoteRanks&) = delete;

  // `starts`: one for each host.
  void start(const std::vector<Start>& starts, RanksListener& listener);

  void signal(int number) override { tell_all(SignalRanks{number}); }
  void note_signal() override;
  std::vector<StoppedRank> find_stopped() const override;
  void suspend() override { tell_all(Suspend{true}); }
  void resume() override { tell_all(Suspend{false}); }
  void finish(std::function<void()> done) override;
  std::optional<int64_t> take_new_oom_kills() override;

 private:
  struct Host {
    RemoteHost at;
    std::vector<bool> ended;  // by rank
    std::vector<StoppedRank> stopped = {};
    int signals = 0;  // that its agent was sent
    bool leaves = false;
    bool finished = false;

    bool has(int rank) const {
      return rank >= at.first_rank && rank < at.first_rank + at.num_ranks;
    }
    bool end(int rank);  // false: it had
  };

  void on_message(Host& host, const Message& message);
  void on(Host& host, const Lines& message);
  void on(Host& host, const RanksLookedAt& message);
  void on(Host& host, const Signalled& message);
  void on(Host& host, const Warning& message);
  void on(Host& host, const Finished& message);
  template <typename Other>
  void on(Host& host, const Other& message);

  bool was_signalled(const Host& host) const { return host.signals > signals_; }
  void start_leaving();
  void end_job(int signal);
  void on_lost(Host& host, const std::string& why);
  void give_up(Host& host, const std::string& why);
  void tell_all(const Message& message);
  void check_finished();

  std::vector<std::unique_ptr<Host>> hosts_;
  RunningTimer finish_timer_;
  RunningTimer moment_timer_;
  bool keep_agents_;
  RanksListener* listener_ = nullptr;
  OnLeaving on_leaving_;
  bool waits_for_others_ = false;  // to see whether they are sent the signal, too
  int last_signal_ = 0;
  int signals_ = 0;  // that have been told of
  std::optional<int64_t> oom_kills_;
  std::function<void()> on_finished_;
};

}  // namespace zeroth::launcher
