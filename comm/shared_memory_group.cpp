#include "comm/shared_memory_group.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/printable.h"
#include "base/standard_streams.h"
#include "comm/call.h"
#include "comm/exchange.h"
#include "comm/share_segment.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

struct Job {
  Call call;
  uint64_t number;
  std::unique_ptr<Exchange> exchange;
  Stopwatch since_issue;
  bool done = false;
};

// What all ranks must agree on.
uint64_t label_of(const Job& job) {
  uint64_t hash = fnv1a(job.call.kind);
  hash = fnv1a(hash, static_cast<uint64_t>(job.call.bytes));
  hash = fnv1a(hash, static_cast<uint64_t>(job.call.elements));
  return fnv1a(hash, job.number);
}

// The jobs under way, in the order of issue. A job may be put into slots, taken from them and
// finished at different times; each of these three runs through the jobs in order.
class Worker final : public HostProgress::Mover {
 public:
  Worker(SharedRing ring, std::shared_ptr<RankTable> table, std::shared_ptr<HostProgress> progress,
         SharedMemoryOptions options)
      : ring_(std::move(ring)),
        table_(std::move(table)),
        progress_(std::move(progress)),
        options_(std::move(options)) {
    progress_->add(*this);
  }
  ~Worker() override { progress_->remove(*this); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int rank() const { return ring_.rank(); }
  int size() const { return ring_.ranks(); }
  const CommTimes& times() const { return times_; }

  template <typename MakeExchange>
  std::shared_ptr<Job> issue(Call call, MakeExchange&& make) {
    const Stopwatch working;
    // Nothing is counted before what may throw: a collective that was refused leaves no trace.
    auto exchange = make(ring_, next_piece_);
    auto job = std::make_shared<Job>(
        Job{std::move(call), issued_ + 1, std::move(exchange), working, false});
    jobs_.push_back(job);
    ++issued_;
    next_piece_ = job->exchange->end_piece();
    times_.bytes += job->call.bytes;
    ++times_.collectives;
    table_->issue(job->number, job->call.describe());
    retire();  // where it has no elements
    while (work()) {
    }
    times_.working_s += working.seconds();
    if (job->done) times_.under_way_s += job->since_issue.seconds();
    return job;
  }

  void complete(Job& job) {
    const Stopwatch total;
    double waited = 0;
    while (!job.done) {
      if (!work() && !progress_->work()) waited += block();
    }
    times_.waiting_s += waited;
    times_.working_s += total.seconds() - waited;
    times_.under_way_s += job.since_issue.seconds();
  }

  bool can_work() override { return can_put() || can_take() || can_finish(); }

  bool work() override {
    if (Job* job = can_put()) {
      job->exchange->put(put_.piece);
      ring_.label(rank(), put_.piece) = label_of(*job);
      advance(SharedRing::kPut, ++put_.piece);
      return true;
    }
    if (Job* job = can_take()) {
      require_same(*job);
      job->exchange->take(take_.piece);
      advance(SharedRing::kTaken, ++take_.piece);
      return true;
    }
    if (Job* job = can_finish()) {
      job->exchange->finish(finish_.piece);
      advance(SharedRing::kDone, ++finish_.piece);
      retire();
      return true;
    }
    return false;
  }

 private:
  // How far the sequence of pieces of all jobs has come.
  struct Cursor {
    uint64_t piece = 0;
    uint64_t job = 0;  // number - 1
  };

  Job* at(Cursor& cursor) {
    for (; cursor.job < issued_; ++cursor.job) {
      Job& job = *jobs_[cursor.job - retired_];
      if (cursor.piece < job.exchange->end_piece()) return &job;
    }
    return nullptr;
  }

  bool peers_reached(SharedRing::Counter counter, uint64_t piece, const Exchange& exchange) const {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || !exchange.takes_from(peer)) continue;
      if (ring_.count(peer, counter) <= piece) return false;
    }
    return true;
  }

  Job* can_put() {
    Job* job = at(put_);
    return job && put_.piece < ring_.least(SharedRing::kDone) + ring_.slots() ? job : nullptr;
  }
  Job* can_take() {
    Job* job = take_.piece < put_.piece ? at(take_) : nullptr;
    return job && peers_reached(SharedRing::kPut, take_.piece, *job->exchange) ? job : nullptr;
  }
  Job* can_finish() {
    Job* job = finish_.piece < take_.piece ? at(finish_) : nullptr;
    if (job == nullptr || !job->exchange->has_two_rounds()) return job;
    return peers_reached(SharedRing::kTaken, finish_.piece, *job->exchange) ? job : nullptr;
  }

  void advance(SharedRing::Counter counter, uint64_t count) {
    ring_.advance(counter, count);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) progress_->wake(options_.members.number(peer));
    }
  }

  void retire() {
    while (!jobs_.empty() && finish_.piece >= jobs_.front()->exchange->end_piece()) {
      jobs_.front()->done = true;
      table_->finish(jobs_.front()->number);
      jobs_.pop_front();
      ++retired_;
      for (Cursor* cursor : {&put_, &take_, &finish_}) {
        cursor->job = std::max(cursor->job, retired_);
      }
    }
  }

  void require_same(const Job& job) const {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || !job.exchange->takes_from(peer)) continue;
      if (ring_.label(peer, take_.piece) == label_of(job)) continue;
      throw Error("{}: rank {} issued something else: {}", name(job), options_.members.number(peer),
                  table_->last(peer));
    }
  }

  // Sleeps until there is something to do, in any group of the rank; seconds slept. Throws when a
  // peer that is needed is lost, or the time limit has passed, which stands still while the job is
  // suspended.
  double block() {
    const Stopwatch blocked;
    const auto glance = std::min(kGlance, options_.timeout);
    RunningTime time;
    SlowWait slow(options_.log_after);
    HostReports* const reports = progress_->reports();
    while (!progress_->wait(glance)) {
      const auto waited = time.passed();
      if (reports) reports->waits(waited, [this] { return waiting_text(); });
      const std::vector<int> late = late_ranks();
      if (slow.due(waited) && is_first_on_time(late)) log_wait(waited);
      for (const int peer : late) {
        if (table_->lost(peer) && !progress_->can_work())
          fail(fmt::format("rank {}{} is gone", options_.members.number(peer),
                           options_.members.on_host()),
               late);
      }
      if (waited >= options_.timeout) fail(time_limit_text(waited), late);
    }
    if (reports) reports->over();
    return blocked.seconds();
  }

  // Whether this is the lowest rank that does not hold the collective up: it alone logs a wait.
  bool is_first_on_time(const std::vector<int>& late) const {
    for (int peer = 0; peer < rank(); ++peer)
      if (std::find(late.begin(), late.end(), peer) == late.end()) return false;
    return !jobs_.empty();
  }

  void log_wait(std::chrono::milliseconds waited) {
    write_all(STDERR_FILENO,
              printable_message(fmt::format(
                  "zeroth: {} waits: {}; {} s by now, up to {} s (--timeout)\n",
                  options_.members.name_of(rank(), size()), waiting_text(), waited.count() / 1000,
                  std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count())));
  }

  // Whom the oldest job waits for.
  std::vector<int> late_ranks() {
    std::vector<int> late;
    const Job* taking = take_.piece < put_.piece ? at(take_) : nullptr;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const bool no_input = taking && taking->exchange->takes_from(peer) &&
                            ring_.count(peer, SharedRing::kPut) <= take_.piece;
      const bool no_result =
          finish_.piece < take_.piece && ring_.count(peer, SharedRing::kTaken) <= finish_.piece;
      const bool no_room = ring_.count(peer, SharedRing::kDone) + ring_.slots() <= put_.piece;
      if (no_input || no_result || no_room) late.push_back(peer);
    }
    return late;
  }

  std::string name(const Job& job) const {
    return fmt::format("{}: {} over {} failed", options_.members.name_of(rank(), size()),
                       job.call.describe(), options_.members.name());
  }

  std::string waiting_text() {
    if (jobs_.empty()) return "nothing of its machine";
    const Job& oldest = *jobs_.front();
    return fmt::format("{} over {}; {}", oldest.call.describe(), options_.members.name(),
                       table_->explain(oldest.number, late_ranks()));
  }

  [[noreturn]] void fail(const std::string& why, const std::vector<int>& late) const {
    const Job& oldest = *jobs_.front();
    const std::string text =
        fmt::format("{}: {}; {}", name(oldest), why, table_->explain(oldest.number, late));
    if (HostReports* const reports = progress_->reports()) reports->failed(text);
    throw Error("{}", text);
  }

  SharedRing ring_;
  std::shared_ptr<RankTable> table_;
  std::shared_ptr<HostProgress> progress_;
  SharedMemoryOptions options_;
  std::deque<std::shared_ptr<Job>> jobs_;  // issued, not retired
  uint64_t issued_ = 0;
  uint64_t retired_ = 0;
  uint64_t next_piece_ = 0;
  Cursor put_, take_, finish_;
  CommTimes times_;
};

class SharedPending final : public Pending::Impl {
 public:
  SharedPending(std::shared_ptr<Worker> worker, std::shared_ptr<Job> job)
      : worker_(std::move(worker)), job_(std::move(job)) {}
  void wait() override { worker_->complete(*job_); }
  bool ready() override { return job_->done; }

 private:
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<Job> job_;
};

class SharedMemoryGroup final : public Group {
 public:
  SharedMemoryGroup(SharedRing ring, std::shared_ptr<RankTable> table,
                    std::shared_ptr<HostProgress> progress, const SharedMemoryOptions& options)
      : progress_(std::move(progress)),
        options_(options),
        worker_(std::make_shared<Worker>(std::move(ring), std::move(table), progress_, options)) {}

  int rank() const override { return worker_->rank(); }
  int size() const override { return worker_->size(); }
  CommTimes times() const override { return worker_->times(); }

  Pending issue(const Collective& collective) override {
    require_fit(collective, size());
    auto job = worker_->issue(Call(collective), [&](SharedRing& ring, uint64_t first) {
      return make_exchange(ring, first, collective);
    });
    if (job->done) return {};
    return Pending(std::make_shared<SharedPending>(worker_, std::move(job)));
  }

  std::unique_ptr<Group> split(const Partition& partition) override;

 private:
  std::shared_ptr<HostProgress> progress_;  // of all groups of this rank
  SharedMemoryOptions options_;
  std::shared_ptr<Worker> worker_;
};

size_t ring_offset(int size, int bells) {
  return RankTable::bytes(size) + RankBells::bytes(bells);
}

std::unique_ptr<Group> on_segment(std::shared_ptr<SharedSegment> segment,
                                  std::shared_ptr<RankTable> table, const Place& place, int bells,
                                  const SharedMemoryOptions& options) {
  SharedMemoryOptions own = options;
  own.members = place.members;
  SharedRing ring(std::move(segment), ring_offset(place.size, bells), place.rank, place.size,
                  options.ring);
  return std::make_unique<SharedMemoryGroup>(std::move(ring), std::move(table), own.progress, own);
}

std::unique_ptr<Group> SharedMemoryGroup::split(const Partition& partition) {
  ZEROTH_CHECK(options_.members.ranks.empty(), "{} is part of a group", options_.members.name());
  const Place place = place_in(partition, rank());
  SharedMemoryOptions options = options_;
  options.progress = progress_;
  return make_shared_memory_part(*this, partition, place, options);
}

}  // namespace

size_t shared_memory_group_bytes(int size, const RingSize& ring, int bells) {
  return ring_offset(size, bells > 0 ? bells : size) + SharedRing::bytes(size, ring) + 4096;
}

std::shared_ptr<HostProgress> make_host_progress(std::shared_ptr<SharedSegment> segment, int size,
                                                 int rank, int bells,
                                                 std::shared_ptr<HostReports> reports) {
  return std::make_shared<HostProgress>(
      RankBells(std::move(segment), RankTable::bytes(size), rank, bells), std::move(reports));
}

std::unique_ptr<Group> make_shared_memory_group(std::shared_ptr<SharedSegment> segment,
                                                std::shared_ptr<RankTable> table, int rank,
                                                int size, const SharedMemoryOptions& options) {
  SharedMemoryOptions own = options;
  if (!own.progress) own.progress = make_host_progress(segment, size, rank, size, nullptr);
  return on_segment(std::move(segment), std::move(table), {rank, size, options.members},
                    options.bells > 0 ? options.bells : size, own);
}

std::unique_ptr<Group> make_shared_memory_part(Group& host, const Partition& partition,
                                               const Place& place,
                                               const SharedMemoryOptions& options) {
  const size_t bytes = shared_memory_group_bytes(place.size, options.ring);
  auto segment = share_segment(host, partition, bytes, options.run);
  if (!segment) return make_solo_group();
  auto table = std::make_shared<RankTable>(segment, place.rank, place.size, place.members);
  return on_segment(std::move(segment), std::move(table), place, place.size, options);
}

}  // namespace zeroth::comm
