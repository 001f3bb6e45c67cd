#include "comm/groups/c10d_group.h"

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine/process_limits.h"
#include "base/machine/timer.h"
#include "comm/collective_info.h"
#include "comm/groups/pair_link.h"
#include "comm/groups/peer_reports.h"
#include "comm/groups/progress_engine.h"
#include "comm/groups/rank_table.h"
#include "comm/groups/watchdog.h"
#include "comm/time_limit.h"
#include "device/events.h"

namespace zeroth::comm {
namespace {

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    default:
      return c10d::ReduceOp::SUM;
  }
}

// A DeviceWaitTimer measures how long a device's stream waits for collectives, by events on the
// stream; no call waits for the device.
class DeviceWaitTimer {
 public:
  struct WaitSpan {
    c10::Device device;
    device::Event issued, before, after;
  };

  // Called when the collective is issued, from the current stream of the device.
  WaitSpan issue(c10::Device device) { return {device, record(device), nullptr, nullptr}; }
  // begin_wait() and end_wait() enclose the current stream's wait for the collective.
  void begin_wait(WaitSpan& span) { span.before = record(span.device); }
  // Ends the wait. Collects, too, because an evaluation or a save issues thousands of collectives,
  // whose times are read only when it has ended.
  void end_wait(WaitSpan span, CommTimes& times) {
    span.after = record(span.device);
    spans_.push_back(std::move(span));
    collect(times);
  }

  // Adds the waits that the device has completed since the last call to waiting_s and in_flight_s.
  void collect(CommTimes& times) {
    while (!spans_.empty() && spans_.front().after->query()) {
      const WaitSpan& span = spans_.front();
      times.waiting_s += device::seconds_between(span.before, span.after);
      times.in_flight_s += device::seconds_between(span.issued, span.after);
      spans_.pop_front();
    }
  }

 private:
  device::Event record(c10::Device device) {
    if (!events_) events_.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    return events_->record(device::current_stream(device));
  }

  std::deque<WaitSpan> spans_;
  std::optional<device::EventPool> events_;  // for the device that was seen first
};

// State that a group shares with its collectives in progress.
struct BackendState {
  c10::intrusive_ptr<c10d::Backend> backend;
  C10dGroupOptions options;
  CommTimes times;
  DeviceWaitTimer device_waits;
  uint64_t issued = 0;

  std::string peers(uint64_t sequence) const {
    if (options.table) return options.table->explain(sequence, {});
    if (PeerReports* const peer_reports = reports()) {
      std::vector<int> others = options.members.ranks;
      if (others.empty()) others = all_ranks(backend->getSize());
      std::erase(others, options.members.global_rank(backend->getRank()));
      return peer_reports->reports_from(others);
    }
    // One of them may have ended for want of memory, without the time to say so.
    const std::string limit = address_space_limit();
    return limit.empty() ? "its peers are not known" : "its peers are not known; " + limit;
  }
  PeerReports* reports() const {
    if (options.reports) return options.reports.get();
    return options.progress ? options.progress->reports() : nullptr;
  }
  std::string describe_wait(const CollectiveInfo& info) const {
    return fmt::format("{} over {}", info.describe(), options.members.name());
  }

  std::string message(const CollectiveInfo& info, uint64_t sequence, const std::string& why) const {
    return fmt::format("{}: {} failed: {}; {}",
                       options.members.rank_name(backend->getRank(), backend->getSize()),
                       describe_wait(info), why, peers(sequence));
  }
  [[noreturn]] void fail(const CollectiveInfo& info, uint64_t sequence,
                         const std::exception& cause) const {
    if (PeerReports* const peer_reports = reports())
      peer_reports->report_failure(
          fmt::format("{} failed: {}", describe_wait(info), error_message(cause)));
    throw Error("{}", message(info, sequence, error_message(cause)));
  }
};

std::string work_error(c10d::Work& work) {
  const std::exception_ptr error = work.exception();
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& cause) {
    return error_message(cause);
  }
}

// A BackendHandle is a collective that the backend has started.
class BackendHandle : public CollectiveHandle::Impl {
 protected:
  BackendHandle(std::shared_ptr<BackendState> state, c10::intrusive_ptr<c10d::Work> work,
                CollectiveInfo info)
      : state_(std::move(state)),
        work_(std::move(work)),
        info_(std::move(info)),
        sequence_(state_->issued) {}

  void wait_for_work() {
    try {
      work_->wait();
    } catch (const std::exception& cause) {
      state_->fail(info_, sequence_, cause);
    }
  }

  std::shared_ptr<BackendState> state_;
  c10::intrusive_ptr<c10d::Work> work_;
  CollectiveInfo info_;
  uint64_t sequence_;
};

// A CpuWaitHandle blocks the CPU in wait().
class CpuWaitHandle final : public BackendHandle {
 public:
  CpuWaitHandle(std::shared_ptr<BackendState> state, c10::intrusive_ptr<c10d::Work> work,
                CollectiveInfo info)
      : BackendHandle(std::move(state), std::move(work), std::move(info)) {
    if (!state_->options.progress) return;
    future_ = work_->getFuture();
    future_->addCallback([wake = state_->options.progress->waker()](auto&) { wake(); },
                         /*uses_future=*/false);
  }

  bool ready() override { return future_ && future_->completed(); }

  void wait() override {
    const Timer waiting;
    if (future_) drive_progress();
    wait_for_work();
    state_->times.waiting_s += waiting.seconds();
    state_->times.in_flight_s += since_issue_.seconds();
    if (state_->options.table) state_->options.table->finish(sequence_);
  }

 private:
  // Drives progress; ends with the backend's own time limit at the latest.
  void drive_progress() {
    ProgressEngine& progress = *state_->options.progress;
    SuspendAwareTimer time;
    while (!ready()) {
      if (progress.work() || progress.wait_or([this] { return ready(); }, kPollInterval)) continue;
      if (PeerReports* const reports = progress.reports())
        reports->report_wait(time.elapsed(), [this] { return state_->describe_wait(info_); });
    }
    if (PeerReports* const reports = progress.reports()) reports->clear();
  }

  c10::intrusive_ptr<c10::ivalue::Future> future_;  // set if waits drive other transfers
  Timer since_issue_;
};

// A DeviceWaitHandle makes the current stream wait; the watchdog observes the end. Holds the
// collective's tensors until then: what the current stream does with their memory after wait()
// comes after the collective.
class DeviceWaitHandle final : public BackendHandle {
 public:
  DeviceWaitHandle(std::shared_ptr<BackendState> state, c10::intrusive_ptr<c10d::Work> work,
                   DeviceWaitTimer::WaitSpan span, CollectiveInfo info,
                   std::vector<torch::Tensor> tensors)
      : BackendHandle(std::move(state), std::move(work), std::move(info)),
        span_(std::move(span)),
        tensors_(std::move(tensors)) {
    watch();
  }

  // An exception may drop the handle without wait(). Its memory is then reused, too.
  ~DeviceWaitHandle() override {
    if (waited_) return;
    try {
      work_->wait();
    } catch (const std::exception&) {  // the rank fails already
    }
  }

  void wait() override {
    state_->device_waits.begin_wait(span_);
    block_current_stream();
    waited_ = true;
    state_->device_waits.end_wait(std::move(span_), state_->times);
  }

  bool block_current_stream() override {
    wait_for_work();
    return true;
  }

 private:
  // The functions that the watchdog's thread calls must not keep the state alive, as its destructor
  // would end the watchdog on that thread.
  void watch() const {
    const std::weak_ptr<BackendState> state = state_;
    const auto table = state_->options.table;
    Watchdog::WatchedWork work_item;
    work_item.ended = [work = work_] { return work->isCompleted() && work_error(*work).empty(); };
    // Called only while no earlier collective is in progress.
    work_item.lost = [work = work_, table, sequence = sequence_, reports = state_->options.reports,
                      info = info_,
                      over = state_->options.reports ? state_->options.members.name() : "",
                      waiting = SuspendAwareTimer()]() mutable {
      if (reports) {
        reports->report_wait(waiting.elapsed(),
                             [&] { return fmt::format("{} over {}", info.describe(), over); });
      }
      const std::string error = work_error(*work);
      return error.empty() && table ? table->lost_before(sequence) : error;
    };
    work_item.message = [state, info = info_, sequence = sequence_](const std::string& why) {
      const auto alive = state.lock();
      return alive ? alive->message(info, sequence, why) : info.describe() + " failed: " + why;
    };
    work_item.on_done = [table, sequence = sequence_, reports = state_->options.reports] {
      if (table) table->finish(sequence);
      if (reports) reports->clear();
    };
    state_->options.watchdog->watch(std::move(work_item));
  }

  DeviceWaitTimer::WaitSpan span_;
  std::vector<torch::Tensor> tensors_;
  bool waited_ = false;
};

// Returns a view of the elements that does not keep their memory alive. c10d's Work keeps its
// outputs as long as the watchdog keeps the Work: until the device has run the collective, which
// may be many collectives after wait(). The outputs of all of these would stay allocated.
torch::Tensor non_owning_view(const torch::Tensor& tensor) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

// Launches the collective with the tensors in the form that c10d expects.
c10::intrusive_ptr<c10d::Work> launch(const Collective& collective, c10d::Backend& backend) {
  torch::Tensor out = collective.out, in = collective.in;
  std::vector<torch::Tensor> tensors = {out};
  switch (collective.kind) {
    case Collective::OpType::kAllReduce: {
      c10d::AllreduceOptions options;
      options.reduceOp = to_c10d(collective.op);
      return backend.allreduce(tensors, options);
    }
    case Collective::OpType::kAllGather:
      return backend._allgather_base(out, in);
    case Collective::OpType::kReduceScatter:
      return backend._reduce_scatter_base(out, in);
    case Collective::OpType::kBroadcast: {
      c10d::BroadcastOptions options;
      options.rootRank = collective.root;
      return backend.broadcast(tensors, options);
    }
    case Collective::OpType::kAllToAll: {
      std::vector<int64_t> equal;  // equal parts
      return backend.alltoall_base(out, in, equal, equal);
    }
  }
  throw InternalError("unknown collective");
}

class BackendGroup final : public C10dGroup {
 public:
  BackendGroup(c10::intrusive_ptr<c10d::Backend> backend, C10dGroupOptions options)
      : state_(std::make_shared<BackendState>()) {
    state_->backend = std::move(backend);
    state_->options = std::move(options);
  }

  // Other ranks may delay this destructor: the watchdog makes sure that it ends.
  ~BackendGroup() override {
    const auto watchdog = state_->options.watchdog;
    if (!watchdog) return;
    const auto guard =
        watchdog->guard([rank = rank(), members = state_->options.members](const std::string& why) {
          return fmt::format("rank {}: shutdown of group {} failed: {}", members.global_rank(rank),
                             members.name(), why);
        });
    try {
      state_->backend->shutdown();
    } catch (const std::exception&) {  // its resources are freed with the process
    }
  }

  int rank() const override { return state_->backend->getRank(); }
  int size() const override { return state_->backend->getSize(); }
  CommTimes times() const override {
    state_->device_waits.collect(state_->times);
    return state_->times;
  }

  std::unique_ptr<Group> split(const Partition& partition) override {
    ZEROTH_CHECK(state_->options.split != nullptr, "group {}", state_->options.members.name());
    return state_->options.split(partition);
  }

  CollectiveHandle issue(const Collective& collective) override {
    check_tensor_shapes(collective, size());
    return start_collective(CollectiveInfo(collective), {collective.out, collective.in}, [&] {
      if (!state_->options.watchdog) return launch(collective, *state_->backend);
      Collective detached = collective;
      detached.out = non_owning_view(collective.out);
      detached.in = non_owning_view(collective.in);
      return launch(detached, *state_->backend);
    });
  }

  CollectiveHandle send_recv(const torch::Tensor& out, const torch::Tensor& in,
                             std::string_view what) override {
    ZEROTH_CHECK(state_->options.link != nullptr, "group {}", state_->options.members.name());
    const torch::Tensor& larger = out.numel() < in.numel() ? in : out;
    CollectiveInfo info({Collective::OpType::kAllToAll, larger, larger, what});
    info.kind = "exchange";
    return start_collective(info, {out, in},
                            [&] { return state_->options.link->send_recv(out, in); });
  }

 private:
  template <typename Start>
  CollectiveHandle start_collective(const CollectiveInfo& info, std::vector<torch::Tensor> tensors,
                                    Start&& start) {
    const uint64_t sequence = ++state_->issued;
    if (state_->options.table) state_->options.table->issue(sequence, info.describe());
    state_->times.bytes += info.bytes;
    ++state_->times.collectives;
    try {
      if (!state_->options.watchdog)
        return CollectiveHandle(std::make_shared<CpuWaitHandle>(state_, start(), info));
      DeviceWaitTimer::WaitSpan span = state_->device_waits.issue(tensors.front().device());
      auto work = start();
      return CollectiveHandle(std::make_shared<DeviceWaitHandle>(state_, work, std::move(span),
                                                                 info, std::move(tensors)));
    } catch (const std::exception& cause) {
      state_->fail(info, sequence, cause);
    }
  }

  std::shared_ptr<BackendState> state_;
};

}  // namespace

std::unique_ptr<C10dGroup> make_c10d_group(c10::intrusive_ptr<c10d::Backend> backend,
                                           C10dGroupOptions options) {
  return std::make_unique<BackendGroup>(std::move(backend), std::move(options));
}

}  // namespace zeroth::comm
