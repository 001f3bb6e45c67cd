#include "comm/c10d_group.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/call.h"
#include "comm/time_limit.h"
#include "device/events.h"

namespace zeroth::comm {
namespace {

c10d::ReduceOp to_c10d(Reduce op) {
  switch (op) {
    case Reduce::kMax:
      return c10d::ReduceOp::MAX;
    case Reduce::kMin:
      return c10d::ReduceOp::MIN;
    default:
      return c10d::ReduceOp::SUM;
  }
}

// How long a device's stream waits for collectives, by events on the stream; no call waits for the
// device.
class DeviceWaits {
 public:
  struct Span {
    c10::Device device;
    device::Event issued, before, after;
  };

  // The collective is issued now, from the current stream of the device.
  Span issue(c10::Device device) { return {device, record(device), nullptr, nullptr}; }
  // The current stream waits for it between these two.
  void begin_wait(Span& span) { span.before = record(span.device); }
  // Collects, too: an evaluation or a save issues thousands of collectives, and their
  // times are asked for when it has ended.
  void end_wait(Span span, CommTimes& times) {
    span.after = record(span.device);
    spans_.push_back(std::move(span));
    collect(times);
  }

  // Adds the waits that the device has come through since the last call to waiting_s and
  // under_way_s.
  void collect(CommTimes& times) {
    while (!spans_.empty() && spans_.front().after->query()) {
      const Span& span = spans_.front();
      times.waiting_s += device::seconds_between(span.before, span.after);
      times.under_way_s += device::seconds_between(span.issued, span.after);
      spans_.pop_front();
    }
  }

 private:
  device::Event record(c10::Device device) {
    if (!events_) events_.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    return events_->record(device::current_stream(device));
  }

  std::deque<Span> spans_;
  std::optional<device::EventPool> events_;  // of the device that was seen first
};

// What a group and its collectives under way share.
struct State {
  c10::intrusive_ptr<c10d::Backend> backend;
  C10dGroupOptions options;
  CommTimes times;
  DeviceWaits device_waits;
  uint64_t issued = 0;

  std::string peers(uint64_t number) const {
    if (options.table) return options.table->explain(number, {});
    if (HostReports* const told = reports()) {
      std::vector<int> others = options.members.ranks;
      for (int rank = 0; options.members.ranks.empty() && rank < backend->getSize(); ++rank)
        others.push_back(rank);
      std::erase(others, options.members.number(backend->getRank()));
      return told->told_by(others);
    }
    return "its peers are not known";
  }
  HostReports* reports() const {
    if (options.reports) return options.reports.get();
    return options.progress ? options.progress->reports() : nullptr;
  }
  std::string waiting_text(const Call& call) const {
    return fmt::format("{} over {}", call.describe(), options.members.name());
  }

  std::string message(const Call& call, uint64_t number, const std::string& why) const {
    return fmt::format("{}: {} over {} failed: {}; {}",
                       options.members.name_of(backend->getRank(), backend->getSize()),
                       call.describe(), options.members.name(), why, peers(number));
  }
  [[noreturn]] void fail(const Call& call, uint64_t number, const std::exception& cause) const {
    if (HostReports* const told = reports())
      told->failed(fmt::format("{} failed: {}", waiting_text(call), words_of(cause)));
    throw Error("{}", message(call, number, words_of(cause)));
  }
};

std::string error_of(c10d::Work& work) {
  const std::exception_ptr error = work.exception();
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& cause) {
    return words_of(cause);
  }
}

// The host waits in wait().
class HostPending final : public Pending::Impl {
 public:
  HostPending(std::shared_ptr<State> state, c10::intrusive_ptr<c10d::Work> work, Call call)
      : state_(std::move(state)),
        work_(std::move(work)),
        call_(std::move(call)),
        number_(state_->issued) {
    if (!state_->options.progress) return;
    future_ = work_->getFuture();
    future_->addCallback([wake = state_->options.progress->waker()](auto&) { wake(); },
                         /*uses_future=*/false);
  }

  bool ready() override { return future_ && future_->completed(); }

  void wait() override {
    const Stopwatch waiting;
    if (future_) move_others();
    try {
      work_->wait();
    } catch (const std::exception& cause) {
      state_->fail(call_, number_, cause);
    }
    state_->times.waiting_s += waiting.seconds();
    state_->times.under_way_s += since_issue_.seconds();
    if (state_->options.table) state_->options.table->finish(number_);
  }

 private:
  // Ends with the backend's own time limit at the latest.
  void move_others() {
    HostProgress& progress = *state_->options.progress;
    RunningTime time;
    while (!ready()) {
      if (progress.work() || progress.wait_or([this] { return ready(); }, kGlance)) continue;
      if (HostReports* const reports = progress.reports())
        reports->waits(time.passed(), [this] { return state_->waiting_text(call_); });
    }
    if (HostReports* const reports = progress.reports()) reports->over();
  }

  std::shared_ptr<State> state_;
  c10::intrusive_ptr<c10d::Work> work_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // where waits move others
  Call call_;
  uint64_t number_;
  Stopwatch since_issue_;
};

// The current stream waits; the watchdog sees the end. Holds the collective's tensors until then:
// what the current stream does with their memory after wait() comes after the collective.
class DevicePending final : public Pending::Impl {
 public:
  DevicePending(std::shared_ptr<State> state, c10::intrusive_ptr<c10d::Work> work,
                DeviceWaits::Span span, Call call, std::vector<torch::Tensor> tensors)
      : state_(std::move(state)),
        work_(std::move(work)),
        span_(std::move(span)),
        call_(std::move(call)),
        tensors_(std::move(tensors)),
        number_(state_->issued) {
    watch();
  }

  // An exception may drop it without wait(). Its memory is then reused, too.
  ~DevicePending() override {
    if (waited_) return;
    try {
      work_->wait();
    } catch (const std::exception&) {  // the rank fails already
    }
  }

  void wait() override {
    state_->device_waits.begin_wait(span_);
    order();
    waited_ = true;
    state_->device_waits.end_wait(std::move(span_), state_->times);
  }

  bool order() override {
    try {
      work_->wait();
    } catch (const std::exception& cause) {
      state_->fail(call_, number_, cause);
    }
    return true;
  }

 private:
  std::string reported_group() const {
    return state_->options.reports ? state_->options.members.name() : std::string();
  }

  // What the watchdog's thread calls must not keep the state alive: this thread ends the watchdog.
  void watch() const {
    const std::weak_ptr<State> state = state_;
    const auto table = state_->options.table;
    Watchdog::Watched watched;
    watched.ended = [work = work_] { return work->isCompleted() && error_of(*work).empty(); };
    // Asked while no collective before it is under way.
    watched.lost = [work = work_, table, number = number_, reports = state_->options.reports,
                    call = call_, over = reported_group(), waiting = RunningTime()]() mutable {
      if (reports) {
        reports->waits(waiting.passed(),
                       [&] { return fmt::format("{} over {}", call.describe(), over); });
      }
      const std::string error = error_of(*work);
      return error.empty() && table ? table->lost_before(number) : error;
    };
    watched.message = [state, call = call_, number = number_](const std::string& why) {
      const auto alive = state.lock();
      return alive ? alive->message(call, number, why) : call.describe() + " failed: " + why;
    };
    watched.at_end = [table, number = number_, reports = state_->options.reports] {
      if (table) table->finish(number);
      if (reports) reports->over();
    };
    state_->options.watchdog->watch(std::move(watched));
  }

  std::shared_ptr<State> state_;
  c10::intrusive_ptr<c10d::Work> work_;
  DeviceWaits::Span span_;
  Call call_;
  std::vector<torch::Tensor> tensors_;
  uint64_t number_;
  bool waited_ = false;
};

// The same elements, whose memory it does not keep. c10d's Work keeps its outputs as long as the
// watchdog keeps the Work: until the device has run the collective, which may be many collectives
// after wait(). The outputs of all of these would stay allocated.
torch::Tensor not_owning(const torch::Tensor& tensor) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

// The tensors as c10d takes them.
c10::intrusive_ptr<c10d::Work> hand_over(const Collective& collective, c10d::Backend& backend) {
  torch::Tensor out = collective.out, in = collective.in;
  std::vector<torch::Tensor> tensors = {out};
  switch (collective.kind) {
    case Collective::Kind::kAllReduce: {
      c10d::AllreduceOptions options;
      options.reduceOp = to_c10d(collective.op);
      return backend.allreduce(tensors, options);
    }
    case Collective::Kind::kAllGather:
      return backend._allgather_base(out, in);
    case Collective::Kind::kReduceScatter:
      return backend._reduce_scatter_base(out, in);
    case Collective::Kind::kBroadcast: {
      c10d::BroadcastOptions options;
      options.rootRank = collective.root;
      return backend.broadcast(tensors, options);
    }
    case Collective::Kind::kAllToAll: {
      std::vector<int64_t> equal;  // parts
      return backend.alltoall_base(out, in, equal, equal);
    }
  }
  throw InternalError("a collective of no kind");
}

class BackendGroup final : public C10dGroup {
 public:
  BackendGroup(c10::intrusive_ptr<c10d::Backend> backend, C10dGroupOptions options)
      : state_(std::make_shared<State>()) {
    state_->backend = std::move(backend);
    state_->options = std::move(options);
  }

  // Other ranks may hold it up: the watchdog sees to it that it ends.
  ~BackendGroup() override {
    const auto watchdog = state_->options.watchdog;
    if (!watchdog) return;
    const auto guard =
        watchdog->guard([rank = rank(), members = state_->options.members](const std::string& why) {
          return fmt::format("rank {}: the end of group {} failed: {}", members.number(rank),
                             members.name(), why);
        });
    try {
      state_->backend->shutdown();
    } catch (const std::exception&) {  // what it held is freed with the process
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

  Pending issue(const Collective& collective) override {
    require_fit(collective, size());
    return hand(Call(collective), {collective.out, collective.in}, [&] {
      if (!state_->options.watchdog) return hand_over(collective, *state_->backend);
      Collective given = collective;
      given.out = not_owning(collective.out);
      given.in = not_owning(collective.in);
      return hand_over(given, *state_->backend);
    });
  }

  Pending swap(const torch::Tensor& out, const torch::Tensor& in, std::string_view what) override {
    ZEROTH_CHECK(state_->options.link != nullptr, "group {}", state_->options.members.name());
    const torch::Tensor& larger = out.numel() < in.numel() ? in : out;
    Call call({Collective::Kind::kAllToAll, larger, larger, what});
    call.kind = "exchange";
    return hand(call, {out, in}, [&] { return state_->options.link->swap(out, in); });
  }

 private:
  template <typename Start>
  Pending hand(const Call& call, std::vector<torch::Tensor> tensors, Start&& start) {
    const uint64_t number = ++state_->issued;
    if (state_->options.table) state_->options.table->issue(number, call.describe());
    state_->times.bytes += call.bytes;
    ++state_->times.collectives;
    try {
      if (!state_->options.watchdog)
        return Pending(std::make_shared<HostPending>(state_, start(), call));
      DeviceWaits::Span span = state_->device_waits.issue(tensors.front().device());
      auto work = start();
      return Pending(
          std::make_shared<DevicePending>(state_, work, std::move(span), call, std::move(tensors)));
    } catch (const std::exception& cause) {
      state_->fail(call, number, cause);
    }
  }

  std::shared_ptr<State> state_;
};

}  // namespace

std::unique_ptr<C10dGroup> make_c10d_group(c10::intrusive_ptr<c10d::Backend> backend,
                                           C10dGroupOptions options) {
  return std::make_unique<BackendGroup>(std::move(backend), std::move(options));
}

}  // namespace zeroth::comm
