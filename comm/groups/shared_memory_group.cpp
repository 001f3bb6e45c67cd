#include "comm/groups/shared_memory_group.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/machine/standard_streams.h"
#include "base/text/printable.h"
#include "comm/collective_info.h"
#include "comm/groups/exchange.h"
#include "comm/groups/group_segment.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

struct IssuedCollective {
  CollectiveInfo info;
  uint64_t sequence;
  std::unique_ptr<Exchange> exchange;
  Timer since_issue;
  bool done = false;
};

// Returns a hash of the properties on which all ranks must agree.
uint64_t collective_hash(const IssuedCollective& op) {
  uint64_t hash = fnv1a(op.info.kind);
  hash = fnv1a(hash, static_cast<uint64_t>(op.info.bytes));
  hash = fnv1a(hash, static_cast<uint64_t>(op.info.elements));
  return fnv1a(hash, op.sequence);
}

// A CollectiveWorker runs the operations in progress, in the order of issue. The chunks of an
// operation may be published, consumed and finished at different times; each of these three phases
// processes the operations in order.
class CollectiveWorker final : public ProgressEngine::ProgressClient {
 public:
  CollectiveWorker(SharedRing ring, std::shared_ptr<RankTable> table, SharedMemoryOptions options)
      : ProgressClient(options.progress),
        ring_(std::move(ring)),
        table_(std::move(table)),
        options_(std::move(options)) {}

  int rank() const { return ring_.rank(); }
  int size() const { return ring_.ranks(); }
  const CommTimes& times() const { return times_; }

  std::shared_ptr<IssuedCollective> issue(const Collective& collective) {
    const Timer working;
    // Count nothing before what may throw: a rejected collective leaves no trace.
    auto exchange = make_exchange(ring_, next_chunk_, collective);
    auto op = std::make_shared<IssuedCollective>(IssuedCollective{
        CollectiveInfo(collective), issued_ + 1, std::move(exchange), working, false});
    ops_.push_back(op);
    ++issued_;
    next_chunk_ = op->exchange->end_chunk();
    times_.bytes += op->info.bytes;
    ++times_.collectives;
    table_->issue(op->sequence, op->info.describe());
    retire();  // retires it at once if it has no elements
    while (work()) {
    }
    times_.working_s += working.seconds();
    if (op->done) times_.in_flight_s += op->since_issue.seconds();
    return op;
  }

  void complete(IssuedCollective& op) {
    const Timer total;
    double waited = 0;
    while (!op.done) {
      if (!work() && !progress_->work()) waited += wait_for_peers();
    }
    times_.waiting_s += waited;
    times_.working_s += total.seconds() - waited;
    times_.in_flight_s += op.since_issue.seconds();
  }

  bool can_work() override { return can_put() || can_take() || can_finish(); }

  bool work() override {
    if (IssuedCollective* op = can_put()) {
      op->exchange->publish(put_.chunk);
      ring_.label(rank(), put_.chunk) = collective_hash(*op);
      advance(SharedRing::kPublished, ++put_.chunk);
      return true;
    }
    if (IssuedCollective* op = can_take()) {
      require_same(*op);
      op->exchange->consume(take_.chunk);
      advance(SharedRing::kConsumed, ++take_.chunk);
      return true;
    }
    if (IssuedCollective* op = can_finish()) {
      op->exchange->finish(finish_.chunk);
      advance(SharedRing::kDone, ++finish_.chunk);
      retire();
      return true;
    }
    return false;
  }

 private:
  // Progress in the sequence of chunks of all operations.
  struct ChunkCursor {
    uint64_t chunk = 0;
    uint64_t op = 0;  // sequence - 1
  };

  IssuedCollective* at(ChunkCursor& cursor) {
    for (; cursor.op < issued_; ++cursor.op) {
      IssuedCollective& op = *ops_[cursor.op - retired_];
      if (cursor.chunk < op.exchange->end_chunk()) return &op;
    }
    return nullptr;
  }

  bool peers_reached(SharedRing::Counter counter, uint64_t chunk, const Exchange& exchange) const {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || !exchange.reads_from(peer)) continue;
      if (ring_.count(peer, counter) <= chunk) return false;
    }
    return true;
  }

  IssuedCollective* can_put() {
    IssuedCollective* op = at(put_);
    return op && put_.chunk < ring_.min_count(SharedRing::kDone) + ring_.slots() ? op : nullptr;
  }
  IssuedCollective* can_take() {
    IssuedCollective* op = take_.chunk < put_.chunk ? at(take_) : nullptr;
    return op && peers_reached(SharedRing::kPublished, take_.chunk, *op->exchange) ? op : nullptr;
  }
  IssuedCollective* can_finish() {
    IssuedCollective* op = finish_.chunk < take_.chunk ? at(finish_) : nullptr;
    if (op == nullptr || !op->exchange->has_two_phases()) return op;
    return peers_reached(SharedRing::kConsumed, finish_.chunk, *op->exchange) ? op : nullptr;
  }

  void advance(SharedRing::Counter counter, uint64_t count) {
    ring_.advance(counter, count);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank()) progress_->wake(options_.members.global_rank(peer));
    }
  }

  void retire() {
    while (!ops_.empty() && finish_.chunk >= ops_.front()->exchange->end_chunk()) {
      ops_.front()->done = true;
      table_->finish(ops_.front()->sequence);
      ops_.pop_front();
      ++retired_;
      for (ChunkCursor* cursor : {&put_, &take_, &finish_}) {
        cursor->op = std::max(cursor->op, retired_);
      }
    }
  }

  void require_same(const IssuedCollective& op) const {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || !op.exchange->reads_from(peer)) continue;
      if (ring_.label(peer, take_.chunk) == collective_hash(op)) continue;
      throw Error("{}: rank {} issued a different collective: {}", name(op),
                  options_.members.global_rank(peer), table_->last(peer));
    }
  }

  // Sleeps until there is work in any group of the rank; returns the seconds slept. Throws an Error
  // if a peer that is needed is lost, or the time limit has passed, which does not advance while
  // the job is suspended.
  double wait_for_peers() {
    const Timer blocked;
    const auto poll_interval = std::min(kPollInterval, options_.timeout);
    SuspendAwareTimer time;
    SlowWait slow(options_.log_after);
    PeerReports* const reports = progress_->reports();
    while (!progress_->wait(poll_interval)) {
      const auto waited = time.elapsed();
      if (reports) reports->report_wait(waited, [this] { return describe_wait(); });
      const std::vector<int> late = late_ranks();
      if (slow.due(waited) && is_first_on_time(late)) log_wait(waited);
      for (const int peer : late) {
        if (!table_->is_alive(peer) && !progress_->can_work())
          fail(fmt::format("rank {}{} is gone", options_.members.global_rank(peer),
                           options_.members.on_node()),
               late);
      }
      if (waited >= options_.timeout) fail(timeout_message(waited), late);
    }
    if (reports) reports->clear();
    return blocked.seconds();
  }

  // Returns whether this is the lowest rank that does not delay the collective: it alone logs a
  // wait.
  bool is_first_on_time(const std::vector<int>& late) const {
    for (int peer = 0; peer < rank(); ++peer)
      if (std::find(late.begin(), late.end(), peer) == late.end()) return false;
    return !ops_.empty();
  }

  void log_wait(std::chrono::milliseconds waited) {
    write_all(
        STDERR_FILENO,
        printable_message(fmt::format(
            "zeroth: {} is waiting: {}; {} s so far, up to {} s (--timeout)\n",
            options_.members.rank_name(rank(), size()), describe_wait(), waited.count() / 1000,
            std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count())));
  }

  // Returns the ranks for which the oldest operation waits.
  std::vector<int> late_ranks() {
    std::vector<int> late;
    const IssuedCollective* taking = take_.chunk < put_.chunk ? at(take_) : nullptr;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const bool no_input = taking && taking->exchange->reads_from(peer) &&
                            ring_.count(peer, SharedRing::kPublished) <= take_.chunk;
      const bool no_result =
          finish_.chunk < take_.chunk && ring_.count(peer, SharedRing::kConsumed) <= finish_.chunk;
      const bool no_room = ring_.count(peer, SharedRing::kDone) + ring_.slots() <= put_.chunk;
      if (no_input || no_result || no_room) late.push_back(peer);
    }
    return late;
  }

  std::string name(const IssuedCollective& op) const {
    return fmt::format("{}: {} over {} failed", options_.members.rank_name(rank(), size()),
                       op.info.describe(), options_.members.name());
  }

  std::string describe_wait() {
    if (ops_.empty()) return "nothing on its machine";
    const IssuedCollective& oldest = *ops_.front();
    return fmt::format("{} over {}; {}", oldest.info.describe(), options_.members.name(),
                       table_->explain(oldest.sequence, late_ranks()));
  }

  [[noreturn]] void fail(const std::string& why, const std::vector<int>& late) const {
    const IssuedCollective& oldest = *ops_.front();
    const std::string text =
        fmt::format("{}: {}; {}", name(oldest), why, table_->explain(oldest.sequence, late));
    if (PeerReports* const reports = progress_->reports()) reports->report_failure(text);
    throw Error("{}", text);
  }

  SharedRing ring_;
  std::shared_ptr<RankTable> table_;
  SharedMemoryOptions options_;
  std::deque<std::shared_ptr<IssuedCollective>> ops_;  // issued, not retired
  uint64_t issued_ = 0;
  uint64_t retired_ = 0;
  uint64_t next_chunk_ = 0;
  ChunkCursor put_, take_, finish_;
  CommTimes times_;
};

class SharedMemoryGroup final : public Group {
 public:
  SharedMemoryGroup(SharedRing ring, std::shared_ptr<RankTable> table,
                    const SharedMemoryOptions& options)
      : options_(options),
        worker_(std::make_shared<CollectiveWorker>(std::move(ring), std::move(table), options)) {}

  int rank() const override { return worker_->rank(); }
  int size() const override { return worker_->size(); }
  CommTimes times() const override { return worker_->times(); }

  CollectiveHandle issue(const Collective& collective) override {
    check_tensor_shapes(collective, size());
    const auto op = worker_->issue(collective);
    if (op->done) return {};
    return make_handle([worker = worker_, op] { worker->complete(*op); },
                       [op] { return op->done; });
  }

  std::unique_ptr<Group> split(const Partition& partition) override {
    ZEROTH_CHECK(options_.members.ranks.empty(), "{} is part of a group", options_.members.name());
    return make_shared_memory_part(*this, partition, group_member(partition, rank()), options_);
  }

 private:
  SharedMemoryOptions options_;
  std::shared_ptr<CollectiveWorker> worker_;
};

size_t ring_offset(int size, int num_doorbells) {
  return RankTable::bytes(size) + Doorbells::bytes(num_doorbells);
}

std::unique_ptr<Group> on_segment(std::shared_ptr<SharedSegment> segment,
                                  std::shared_ptr<RankTable> table, const GroupMember& member,
                                  int num_doorbells, SharedMemoryOptions options) {
  options.members = member.members;
  SharedRing ring(std::move(segment), ring_offset(member.size, num_doorbells), member.rank,
                  member.size, options.ring);
  return std::make_unique<SharedMemoryGroup>(std::move(ring), std::move(table), options);
}

}  // namespace

size_t shared_memory_group_bytes(int size, const RingSize& ring, int num_doorbells) {
  return ring_offset(size, num_doorbells > 0 ? num_doorbells : size) +
         SharedRing::bytes(size, ring) + 4096;
}

std::unique_ptr<Group> make_shared_memory_group(std::shared_ptr<SharedSegment> segment,
                                                std::shared_ptr<RankTable> table, int rank,
                                                int size, const SharedMemoryOptions& options) {
  SharedMemoryOptions own = options;
  if (!own.progress)
    own.progress =
        std::make_shared<ProgressEngine>(Doorbells(segment, RankTable::bytes(size), rank, size));
  return on_segment(std::move(segment), std::move(table), {rank, size, options.members},
                    options.num_doorbells > 0 ? options.num_doorbells : size, own);
}

std::unique_ptr<Group> make_shared_memory_part(Group& node, const Partition& partition,
                                               const GroupMember& member,
                                               const SharedMemoryOptions& options) {
  const size_t bytes = shared_memory_group_bytes(member.size, options.ring);
  auto segment = make_group_segment(node, partition, bytes, options.run);
  if (!segment) return make_solo_group();
  auto table = std::make_shared<RankTable>(segment, member.rank, member.size, member.members);
  return on_segment(std::move(segment), std::move(table), member, member.size, options);
}

}  // namespace zeroth::comm
