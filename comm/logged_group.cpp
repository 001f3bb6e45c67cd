#include "comm/logged_group.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "comm/call.h"
#include "comm/mesh.h"

namespace zeroth::comm {
namespace {

void finish_queued_work(torch::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

class LoggedGroup final : public Group {
 public:
  LoggedGroup(std::unique_ptr<Group> group, CommLog& log) : group_(std::move(group)), log_(log) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  CommTimes times() const override { return group_->times(); }

  Pending all_reduce(const torch::Tensor& tensor, Reduce op, std::string_view what) override {
    return timed(what == kBarrier ? "barrier" : "all_reduce", what, tensor,
                 [&] { return group_->all_reduce(tensor, op, what); });
  }
  Pending all_gather(const torch::Tensor& out, const torch::Tensor& in,
                     std::string_view what) override {
    return timed("all_gather_into_tensor", what, out,
                 [&] { return group_->all_gather(out, in, what); });
  }
  Pending reduce_scatter(const torch::Tensor& out, const torch::Tensor& in,
                         std::string_view what) override {
    return timed("reduce_scatter_tensor", what, in,
                 [&] { return group_->reduce_scatter(out, in, what); });
  }
  Pending broadcast(const torch::Tensor& tensor, int root, std::string_view what) override {
    return timed("broadcast", what, tensor, [&] { return group_->broadcast(tensor, root, what); });
  }

 private:
  template <typename Issue>
  Pending timed(const char* operation, std::string_view what, const torch::Tensor& whole,
                Issue&& issue) {
    if (!log_.counts(operation)) return issue();
    finish_queued_work(whole.device());
    const Stopwatch watch;
    issue().wait();
    finish_queued_work(whole.device());
    log_.add(operation, what, static_cast<int64_t>(whole.nbytes()), watch.seconds());
    return {};
  }

  std::unique_ptr<Group> group_;
  CommLog& log_;
};

}  // namespace

std::unique_ptr<Group> make_logged_group(std::unique_ptr<Group> group, CommLog& log) {
  return std::make_unique<LoggedGroup>(std::move(group), log);
}

}  // namespace zeroth::comm
