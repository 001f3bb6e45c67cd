// PipeLink: the activations and gradients that the stages of a pipeline send each other.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/device_mesh.h"
#include "device/tensor.h"
#include "engine/step/partition.h"
#include "engine/step/schedule.h"

namespace zeroth::engine {

// Each pair of ranks that exchange activations, or gradients, has a channel per kind and direction:
// a group of two of its own, whose messages arrive in the order of the sender's operations.
// Receives are posted in that order, one ahead of use. Sends go on during later operations.
class PipeLink {
 public:
  // Makes the channels of the partition's pipeline. Collective.
  PipeLink(const comm::DeviceMesh& mesh, const PipelinePartition& partition,
           std::vector<std::string> block_labels);

  // Returns the extents of a micro-batch's activations but for the last, which all of them share:
  // [batch, seq], or [rows] of this rank's tokens under tensor parallelism. Unset: not fetched yet.
  using LeadingExtents = std::function<std::optional<std::vector<int64_t>>(int64_t micro_batch)>;

  // Begins a step, or an evaluation, in which every rank runs the operations of this schedule,
  // which places virtual stages as the partition's does, on so many micro-batches; without
  // `trains`, only the forward ones. `trained_from` is the first trained block: no gradient crosses
  // to a stage that ends before it. Throws an Error if the step before did not come to its end:
  // what ranks have sent of it is still between them.
  void begin(configs::PipelineConfig::Schedule schedule, int64_t micro_batches, bool trains,
             size_t trained_from, LeadingExtents extents);
  // Returns what a forward operation begins with: what another rank has sent, or `x`, which this
  // rank's operation before it left, if no other has that.
  torch::Tensor receive_input(const PipeOp& op, torch::Tensor x);
  // Sends the result of a forward operation to the rank that goes on with it, and returns nothing;
  // returns `y` if that is this rank, or nothing follows. Throws an Error if its extents are not
  // those that the receiver expects.
  torch::Tensor send_output(const PipeOp& op, torch::Tensor y);
  // The same for gradients of outputs and inputs, of backward operations.
  torch::Tensor receive_gradient(const PipeOp& op, torch::Tensor dy);
  torch::Tensor send_gradient(const PipeOp& op, torch::Tensor dx);
  // Waits until everything is sent.
  void finish();
  // Returns the seconds in which this rank has waited, since the link was made.
  double waited_seconds() const;

 private:
  enum class Kind { kActivation, kGradient };
  // A message crosses from virtual stage `boundary` to the next one, or as a gradient back.
  struct Message {
    int64_t boundary = 0;
    int64_t micro_batch = 0;
    auto operator<=>(const Message&) const = default;
  };
  struct Posted {
    torch::Tensor tensor;
    comm::CollectiveHandle handle;
  };
  struct Channel {
    comm::Group* group = nullptr;
    int root = 0;  // the sender's index in the group
    std::deque<Message> expected = {};
    std::map<Message, Posted> posted = {};
    std::deque<Posted> sent = {};
  };
  // What the first activation that crosses a boundary tells about all later ones.
  struct ActivationMeta {
    bool follows_micro_batch = false;    // extents are those of the micro-batch, then `trailing`
    std::vector<int64_t> trailing = {};  // or all extents
    torch::Dtype dtype = torch::kFloat;
  };

  // Boundaries are numbered by the virtual stages before them. Return whether activations, and
  // gradients, cross this one to another rank.
  bool crosses(int64_t boundary) const;
  bool gradient_crosses(int64_t boundary) const {
    return trained_from_ < partition_.begin(boundary + 1) && crosses(boundary);
  }
  int64_t virtual_stage(const PipeOp& op) const {
    return virtual_stage_of(partition_.schedule, shape_, rank_, op.chunk);
  }
  int rank_after(int64_t boundary) const;
  int rank_before(int64_t boundary) const;
  Channel& channel(Kind kind, int64_t boundary);
  std::optional<std::vector<int64_t>> extents_of(const Message& message) const;
  // Returns "activation of micro-batch 2 behind block layers.3 (stage 0 to 1)".
  std::string describe(Kind kind, const Message& message) const;
  ActivationMeta meta_of(const torch::Tensor& activation, int64_t micro_batch) const;
  void send_meta(Channel& channel, int64_t boundary, const ActivationMeta& meta);
  void receive_meta(Channel& channel, int64_t boundary);
  // Posts the channel's next receive if its extents are known; returns whether it did.
  bool post_next(Kind kind, Channel& channel);
  torch::Tensor receive(Kind kind, const Message& message);
  void send(Kind kind, const Message& message, const torch::Tensor& tensor);

  const comm::DeviceMesh& mesh_;
  PipelinePartition partition_;
  std::vector<std::string> block_labels_;
  PipelineShape shape_;      // with the micro-batches of this step
  bool in_step_ = false;     // begin() without finish()
  size_t trained_from_ = 0;  // of begin()
  int rank_;                 // in mesh dim pp
  LeadingExtents leading_;
  std::map<std::pair<Kind, std::pair<int, int>>, Channel>
      channels_;                             // by kind, sender and receiver
  std::map<int64_t, ActivationMeta> metas_;  // by boundary
};

}  // namespace zeroth::engine
