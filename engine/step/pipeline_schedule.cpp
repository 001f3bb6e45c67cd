#include "engine/step/pipeline_schedule.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "base/error.h"

namespace zeroth::engine {
namespace {

using Schedule = configs::PipelineConfig::Schedule;
using enum PipeOpKind;

// OpList appends operations; each kind counts the micro-batches of each chunk by itself.
class OpList {
 public:
  explicit OpList(const PipelineShape& shape)
      : shape_(shape), counts_(static_cast<size_t>(shape.chunks)) {}

  // Appends the next micro-batch's passes of these kinds through the chunk. Passes of micro-batches
  // that the step does not have are counted and left out.
  void add(std::initializer_list<PipeOpKind> kinds, size_t chunk = 0) {
    for (const PipeOpKind kind : kinds) {
      const int64_t micro_batch = counts_[chunk][static_cast<size_t>(kind)]++;
      if (micro_batch < shape_.micro_batches) ops_.push_back({kind, micro_batch, chunk});
    }
  }
  void add_times(int64_t times, std::initializer_list<PipeOpKind> kinds, size_t chunk = 0) {
    for (int64_t i = 0; i < times; ++i) add(kinds, chunk);
  }
  void add_op(const PipeOp& op) { ops_.push_back(op); }

  int64_t count(PipeOpKind kind, size_t chunk = 0) const {
    return counts_[chunk][static_cast<size_t>(kind)];
  }
  // Appends what is left of the chunk's weight passes.
  void add_weights_left(size_t chunk = 0) {
    while (count(kBackwardWeight, chunk) < count(kBackwardInput, chunk))
      add({kBackwardWeight}, chunk);
  }

  std::vector<PipeOp> take() { return std::move(ops_); }

 private:
  const PipelineShape& shape_;
  std::vector<std::array<int64_t, 4>> counts_;  // [chunk][kind]
  std::vector<PipeOp> ops_;
};

// Returns the forward passes that a rank runs before its first backward pass comes back.
int64_t warm_up(const PipelineShape& shape, int64_t rank) {
  return std::min(shape.ranks - 1 - rank, shape.micro_batches);
}

std::vector<PipeOp> gpipe(const PipelineShape& shape) {
  OpList ops(shape);
  ops.add_times(shape.micro_batches, {kForward});
  ops.add_times(shape.micro_batches, {kBackward});
  return ops.take();
}

std::vector<PipeOp> one_forward_one_backward(const PipelineShape& shape, int64_t rank) {
  OpList ops(shape);
  const int64_t ahead = warm_up(shape, rank);
  ops.add_times(ahead, {kForward});
  ops.add_times(shape.micro_batches - ahead, {kForward, kBackward});
  ops.add_times(ahead, {kBackward});
  return ops.take();
}

// Returns the sizes of the groups of micro-batches that pass all chunks one after the other: as
// many groups as there can be of one micro-batch per rank, the first ones larger by one where that
// leaves some. Of fewer micro-batches in a group than ranks, a rank would wait for a chunk's input
// while the ranks before wait for gradients that it owes.
std::vector<int64_t> group_sizes(const PipelineShape& shape) {
  const int64_t groups = std::max<int64_t>(1, shape.micro_batches / shape.ranks);
  std::vector<int64_t> sizes(static_cast<size_t>(groups), shape.micro_batches / groups);
  const auto larger = static_cast<std::ptrdiff_t>(shape.micro_batches % groups);
  std::for_each(sizes.begin(), sizes.begin() + larger, [](int64_t& size) { ++size; });
  return sizes;
}

// Returns all passes of one kind.
std::vector<PipeOp> in_groups(PipeOpKind kind, const PipelineShape& shape) {
  std::vector<PipeOp> ops;
  int64_t first = 0;
  for (const int64_t size : group_sizes(shape)) {
    const int64_t end = first + size;
    for (int64_t i = 0; i < shape.chunks; ++i) {
      const int64_t chunk = kind == kForward ? i : shape.chunks - 1 - i;
      for (int64_t micro_batch = first; micro_batch < end; ++micro_batch)
        ops.push_back({kind, micro_batch, static_cast<size_t>(chunk)});
    }
    first = end;
  }
  return ops;
}

std::vector<PipeOp> interleaved(const PipelineShape& shape, int64_t rank) {
  const std::vector<PipeOp> forward = in_groups(kForward, shape);
  const std::vector<PipeOp> backward = in_groups(kBackward, shape);
  const auto total = static_cast<int64_t>(forward.size());
  const int64_t group = group_sizes(shape).front();
  const int64_t ahead = std::min(2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * group, total);
  OpList ops(shape);
  for (int64_t i = 0; i < total + ahead; ++i) {
    if (i < total) ops.add_op(forward[static_cast<size_t>(i)]);
    if (i >= ahead) ops.add_op(backward[static_cast<size_t>(i - ahead)]);
  }
  return ops.take();
}

// Returns 1F1B in which gradients of weights follow those of inputs `rank` micro-batches later, so
// that what is left of them fills the gap at the end.
std::vector<PipeOp> zero_bubble(const PipelineShape& shape, int64_t rank) {
  OpList ops(shape);
  const int64_t ahead = warm_up(shape, rank);
  ops.add_times(ahead, {kForward});
  for (int64_t pair = 0; pair < shape.micro_batches - ahead; ++pair) {
    ops.add({kForward, kBackwardInput});
    if (pair >= rank) ops.add({kBackwardWeight});
  }
  ops.add_times(ahead, {kBackwardInput, kBackwardWeight});
  ops.add_weights_left();
  return ops.take();
}

// Returns the passes for at least as many micro-batches as fill the pipeline; OpList leaves out
// those that the step does not have.
std::vector<PipeOp> zero_bubble_v(const PipelineShape& shape, int64_t rank) {
  constexpr size_t kThere = 0, kBack = 1;  // chunks
  const int64_t ranks = shape.ranks;
  const int64_t micro_batches = std::max(2 * ranks - 1, shape.micro_batches);
  OpList ops(shape);
  ops.add_times(2 * (ranks - rank) - 1, {kForward}, kThere);
  for (int64_t i = 0; i < rank; ++i) {
    ops.add({kForward}, kBack);
    ops.add({kForward}, kThere);
  }
  ops.add_times(ranks - rank, {kForward, kBackwardInput, kBackwardWeight}, kBack);
  while (ops.count(kForward, kBack) < micro_batches) {
    if (ops.count(kForward, kThere) < micro_batches) ops.add({kForward}, kThere);
    ops.add({kBackwardInput, kBackwardWeight}, kThere);
    ops.add({kForward, kBackwardInput, kBackwardWeight}, kBack);
  }
  for (int64_t i = 0; i < rank; ++i) {
    ops.add({kBackwardInput}, kThere);
    ops.add({kBackwardInput}, kBack);
  }
  ops.add_times(ranks - rank, {kBackwardInput, kBackwardWeight}, kThere);
  ops.add_weights_left(kBack);
  ops.add_weights_left(kThere);
  return ops.take();
}

// Returns all passes chunk by chunk. On the last rank the last chunk alternates: its backward needs
// nothing but its forward.
std::vector<PipeOp> breadth_first(const PipelineShape& shape, int64_t rank) {
  OpList ops(shape);
  const auto last = static_cast<size_t>(shape.chunks) - 1;
  for (size_t chunk = 0; chunk < last; ++chunk)
    ops.add_times(shape.micro_batches, {kForward}, chunk);
  if (rank + 1 == shape.ranks) {
    ops.add_times(shape.micro_batches, {kForward, kBackward}, last);
  } else {
    ops.add_times(shape.micro_batches, {kForward}, last);
    ops.add_times(shape.micro_batches, {kBackward}, last);
  }
  for (size_t chunk = last; chunk-- > 0;) ops.add_times(shape.micro_batches, {kBackward}, chunk);
  return ops.take();
}

}  // namespace

std::vector<PipeOp> pipeline_ops(Schedule schedule, const PipelineShape& shape, int64_t rank) {
  const auto has_chunks = [&](int64_t chunks) {
    ZEROTH_CHECK(shape.chunks == chunks, "{} chunks per rank, the schedule has {}", shape.chunks,
                 chunks);
  };
  ZEROTH_CHECK(0 <= rank && rank < shape.ranks && shape.chunks > 0 && shape.micro_batches > 0,
               "rank {} of {}, {} chunks, {} micro-batches", rank, shape.ranks, shape.chunks,
               shape.micro_batches);
  switch (schedule) {
    case Schedule::k1F1B:
      has_chunks(1);
      return one_forward_one_backward(shape, rank);
    case Schedule::kGPipe:
      has_chunks(1);
      return gpipe(shape);
    case Schedule::kInterleaved1F1B:
      return interleaved(shape, rank);
    case Schedule::kZbH1:
      has_chunks(1);
      return zero_bubble(shape, rank);
    case Schedule::kZbV:
      has_chunks(2);
      return zero_bubble_v(shape, rank);
    case Schedule::kBreadthFirst:
      break;
  }
  return breadth_first(shape, rank);
}

int64_t virtual_stage_of(Schedule schedule, const PipelineShape& shape, int64_t rank,
                         size_t chunk) {
  if (schedule == Schedule::kZbV && chunk == 1) return shape.virtual_stages() - 1 - rank;
  return static_cast<int64_t>(chunk) * shape.ranks + rank;
}

int64_t rank_of(Schedule schedule, const PipelineShape& shape, int64_t virtual_stage) {
  if (schedule == Schedule::kZbV && virtual_stage >= shape.ranks)
    return shape.virtual_stages() - 1 - virtual_stage;
  return virtual_stage % shape.ranks;
}

}  // namespace zeroth::engine
