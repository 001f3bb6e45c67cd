#include "engine/step/pipe_link.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace zeroth::engine {
namespace {

// ActivationMeta as a tensor: whether it follows the micro-batch, the dtype, the number of extents,
// and these.
constexpr int64_t kMetaSize = 12;
constexpr size_t kMaxExtents = kMetaSize - 3;

}  // namespace

PipeLink::PipeLink(const comm::DeviceMesh& mesh, const PipelinePartition& partition,
                   std::vector<std::string> block_labels)
    : mesh_(mesh),
      partition_(partition),
      block_labels_(std::move(block_labels)),
      shape_(partition.shape(1)),
      rank_(mesh.coordinate(comm::MeshDim::kPp)) {
  for (int64_t boundary = 0; boundary + 1 < shape_.virtual_stages(); ++boundary) {
    const int before = rank_before(boundary), after = rank_after(boundary);
    if (before == after) continue;
    for (const Kind kind : {Kind::kActivation, Kind::kGradient}) {
      const bool forward = kind == Kind::kActivation;
      const std::pair ends = forward ? std::pair(before, after) : std::pair(after, before);
      if (channels_.contains({kind, ends})) continue;
      const std::string name = fmt::format(
          "{}, stage {} to {}", forward ? "activations" : "gradients", ends.first, ends.second);
      comm::Group& group = mesh.pp_group(
          name, {std::min(ends.first, ends.second), std::max(ends.first, ends.second)});
      channels_[{kind, ends}] = {.group = &group, .root = ends.first < ends.second ? 0 : 1};
    }
  }
}

int PipeLink::rank_before(int64_t boundary) const {
  return static_cast<int>(rank_of(partition_.schedule, shape_, boundary));
}

int PipeLink::rank_after(int64_t boundary) const {
  return static_cast<int>(rank_of(partition_.schedule, shape_, boundary + 1));
}

bool PipeLink::crosses(int64_t boundary) const {
  const bool inside = boundary >= 0 && boundary + 1 < shape_.virtual_stages();
  return inside && rank_before(boundary) != rank_after(boundary);
}

PipeLink::Channel& PipeLink::channel(Kind kind, int64_t boundary) {
  const int before = rank_before(boundary), after = rank_after(boundary);
  return channels_.at(
      {kind, kind == Kind::kActivation ? std::pair(before, after) : std::pair(after, before)});
}

void PipeLink::begin(configs::PipelineConfig::Schedule schedule, int64_t micro_batches, bool trains,
                     size_t trained_from, LeadingExtents extents) {
  if (in_step_ && !channels_.empty()) {
    throw Error(
        "pipeline: the step before ended in its middle, and activations of it are still between "
        "the stages: start the run again from a checkpoint");
  }
  in_step_ = true;
  shape_ = partition_.shape(micro_batches);
  leading_ = std::move(extents);
  trained_from_ = trained_from;
  for (auto& [key, channel] : channels_) {
    channel.expected.clear();
    channel.posted.clear();
    const auto& [kind, ends] = key;
    const auto& [sender, receiver] = ends;
    if (receiver != rank_) continue;
    for (const PipeOp& op : pipeline_ops(schedule, shape_, sender)) {
      const int64_t stage = virtual_stage_of(partition_.schedule, shape_, sender, op.chunk);
      if (kind == Kind::kActivation && op.kind == PipeOpKind::kForward && crosses(stage) &&
          rank_after(stage) == rank_)
        channel.expected.push_back({stage, op.micro_batch});
      const bool delivers =
          op.kind == PipeOpKind::kBackward || op.kind == PipeOpKind::kBackwardInput;
      if (kind == Kind::kGradient && trains && delivers && gradient_crosses(stage - 1) &&
          rank_before(stage - 1) == rank_)
        channel.expected.push_back({stage - 1, op.micro_batch});
    }
  }
}

std::optional<std::vector<int64_t>> PipeLink::extents_of(const Message& message) const {
  const ActivationMeta& meta = metas_.at(message.boundary);
  if (!meta.follows_micro_batch) return meta.trailing;
  std::optional<std::vector<int64_t>> extents = leading_(message.micro_batch);
  if (extents) extents->insert(extents->end(), meta.trailing.begin(), meta.trailing.end());
  return extents;
}

PipeLink::ActivationMeta PipeLink::meta_of(const torch::Tensor& activation,
                                           int64_t micro_batch) const {
  const std::vector<int64_t> leading = leading_(micro_batch).value();
  const std::vector<int64_t> sizes = activation.sizes().vec();
  ActivationMeta meta{.trailing = sizes, .dtype = activation.scalar_type()};
  meta.follows_micro_batch =
      sizes.size() >= leading.size() && std::equal(leading.begin(), leading.end(), sizes.begin());
  if (meta.follows_micro_batch)
    meta.trailing.erase(meta.trailing.begin(), meta.trailing.begin() + std::ssize(leading));
  return meta;
}

void PipeLink::send_meta(Channel& channel, int64_t boundary, const ActivationMeta& meta) {
  if (meta.trailing.size() > kMaxExtents)
    throw Error("pipeline: an activation of {} dimensions crosses to another stage, at most {} can",
                meta.trailing.size(), kMaxExtents);
  std::vector<int64_t> values = {meta.follows_micro_batch ? 1 : 0, static_cast<int64_t>(meta.dtype),
                                 std::ssize(meta.trailing)};
  values.insert(values.end(), meta.trailing.begin(), meta.trailing.end());
  values.resize(kMetaSize, 0);
  const torch::Tensor sent = at::tensor(values, torch::kLong).to(mesh_.device());
  channel.sent.push_back(
      {sent, channel.group->broadcast(sent, channel.root, "extents of activations")});
  metas_[boundary] = meta;
}

void PipeLink::receive_meta(Channel& channel, int64_t boundary) {
  const torch::Tensor sent =
      at::empty({kMetaSize}, torch::TensorOptions(mesh_.device()).dtype(torch::kLong));
  channel.group->broadcast(sent, channel.root, "extents of activations").wait();
  const torch::Tensor host = sent.to(torch::kCPU);
  const int64_t* const values = host.const_data_ptr<int64_t>();
  metas_[boundary] = {.follows_micro_batch = values[0] != 0,
                      .trailing = {values + 3, values + 3 + values[2]},
                      .dtype = static_cast<torch::Dtype>(values[1])};
}

bool PipeLink::post_next(Kind kind, Channel& channel) {
  if (channel.expected.empty()) return false;
  const Message message = channel.expected.front();
  if (!metas_.contains(message.boundary)) return false;
  const auto extents = extents_of(message);
  if (!extents) return false;
  Posted posted{
      at::empty(*extents,
                torch::TensorOptions(mesh_.device()).dtype(metas_.at(message.boundary).dtype)),
      {}};
  posted.handle = channel.group->broadcast(posted.tensor, channel.root, describe(kind, message));
  channel.posted.emplace(message, std::move(posted));
  channel.expected.pop_front();
  return true;
}

torch::Tensor PipeLink::receive(Kind kind, const Message& message) {
  Channel& from = channel(kind, message.boundary);
  while (!from.posted.contains(message)) {
    ZEROTH_CHECK(!from.expected.empty(), "micro-batch {} of boundary {} is not expected",
                 message.micro_batch, message.boundary);
    const int64_t next = from.expected.front().boundary;
    if (!metas_.contains(next)) receive_meta(from, next);
    ZEROTH_CHECK(post_next(kind, from), "micro-batch {} is not fetched", message.micro_batch);
  }
  Posted found = std::move(from.posted.extract(message).mapped());
  found.handle.wait();
  if (from.posted.empty()) post_next(kind, from);
  return found.tensor;
}

torch::Tensor PipeLink::receive_input(const PipeOp& op, torch::Tensor x) {
  const int64_t boundary = virtual_stage(op) - 1;
  return crosses(boundary) ? receive(Kind::kActivation, {boundary, op.micro_batch}) : std::move(x);
}

torch::Tensor PipeLink::receive_gradient(const PipeOp& op, torch::Tensor dy) {
  const int64_t boundary = virtual_stage(op);
  return gradient_crosses(boundary) ? receive(Kind::kGradient, {boundary, op.micro_batch})
                                    : std::move(dy);
}

std::string PipeLink::describe(Kind kind, const Message& message) const {
  const int before = rank_before(message.boundary), after = rank_after(message.boundary);
  const bool forward = kind == Kind::kActivation;
  return fmt::format("{} of micro-batch {} behind block {} (stage {} to {})",
                     forward ? "activation" : "gradient", message.micro_batch,
                     block_labels_[partition_.begin(message.boundary + 1) - 1],
                     forward ? before : after, forward ? after : before);
}

void PipeLink::send(Kind kind, const Message& message, const torch::Tensor& tensor) {
  Channel& to = channel(kind, message.boundary);
  Posted posted{tensor.contiguous(), {}};
  posted.handle = to.group->broadcast(posted.tensor, to.root, describe(kind, message));
  to.sent.push_back(std::move(posted));
  // On a GPU waiting orders the current stream only, and keeps the memory of what is being sent.
  while (!to.sent.empty() && to.sent.front().handle.ready()) {
    to.sent.front().handle.wait();
    to.sent.pop_front();
  }
}

torch::Tensor PipeLink::send_output(const PipeOp& op, torch::Tensor y) {
  const int64_t boundary = virtual_stage(op);
  if (!crosses(boundary)) return y;
  Channel& to = channel(Kind::kActivation, boundary);
  if (!metas_.contains(boundary)) send_meta(to, boundary, meta_of(y, op.micro_batch));
  const Message message{boundary, op.micro_batch};
  const std::vector<int64_t> expected = extents_of(message).value();
  if (y.sizes() != at::IntArrayRef(expected) || y.scalar_type() != metas_[boundary].dtype) {
    throw Error(
        "pipeline: the activation of micro-batch {} that crosses to another rank is [{}] of {}, "
        "after the first one [{}] of {} is expected",
        op.micro_batch, fmt::join(y.sizes(), ", "), c10::toString(y.scalar_type()),
        fmt::join(expected, ", "), c10::toString(metas_[boundary].dtype));
  }
  send(Kind::kActivation, message, y);
  return {};
}

torch::Tensor PipeLink::send_gradient(const PipeOp& op, torch::Tensor dx) {
  const int64_t boundary = virtual_stage(op) - 1;
  if (!gradient_crosses(boundary)) return dx;
  const Message message{boundary, op.micro_batch};
  if (!dx.defined()) {  // the blocks here do not depend on their input
    dx = at::zeros(extents_of(message).value(),
                   torch::TensorOptions(mesh_.device()).dtype(metas_.at(boundary).dtype));
  }
  send(Kind::kGradient, message, dx);
  return {};
}

void PipeLink::finish() {
  for (auto& [key, channel] : channels_) {
    for (Posted& sent : channel.sent) sent.handle.wait();
    channel.sent.clear();
    ZEROTH_CHECK(channel.posted.empty(), "{} messages were not used", channel.posted.size());
  }
  leading_ = {};
  in_step_ = false;
}

double PipeLink::waited_seconds() const {
  double seconds = 0;
  for (const auto& [key, channel] : channels_) seconds += channel.group->times().waiting_s;
  return seconds;
}

}  // namespace zeroth::engine
