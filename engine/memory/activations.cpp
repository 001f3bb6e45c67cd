#include "engine/memory/activations.h"

#include <algorithm>

namespace zeroth::engine {
namespace {

using BlockTotals = BlockValues<double>;

BlockTotals bytes_at(const BlockBytes& block, int64_t tokens) {
  return for_each_value([tokens](const Growth& growth) { return growth.at(tokens); }, block);
}

BlockTotals last_block_at(const ChainBytes& chain, int64_t tokens) {
  const bool whole = tokens <= chain.chunk_tokens;
  const BlockTotals chunk = bytes_at(chain.chunked, std::min(tokens, chain.chunk_tokens));
  BlockTotals last = bytes_at(chain.last, tokens);
  last.no_grad += chunk.no_grad;
  last.forward += chunk.forward;
  last.backward += chunk.backward + (whole ? 0 : chunk.kept);
  last.kept += whole ? chunk.kept : 0;
  last.freed += whole ? chunk.freed : 0;
  return last;
}

// PeakTracker follows the memory in use while BlockRunner runs the operations of a step.
class PeakTracker {
 public:
  PeakTracker(const ChainBytes& chain, const StepSchedule& schedule, size_t num_blocks,
              int64_t tokens)
      : schedule_(schedule),
        blocks_(num_blocks, bytes_at(chain.middle, tokens)),
        handed_on_(blocks_.size() + 1) {
    for (size_t i = 0; i < chain.layers.size(); ++i)
      blocks_.at(i + 1) = bytes_at(chain.layers[i], tokens);
    blocks_.front() = bytes_at(chain.first, tokens);
    blocks_.back() = last_block_at(chain, tokens);
    Segment before;
    for (size_t chunk = 0; chunk < schedule.chunks.size(); ++chunk) {
      if (schedule.receives_input(chunk))
        before.trained = false;  // its input is in no graph of this rank
      for (const Segment& segment : schedule.chunks[chunk]) {
        const bool no_grad = segment.first > 0 && !keeps_graphs(before) && !segment.recompute;
        if (no_grad) handed_on_[segment.first] = blocks_[segment.first - 1].output;
        if (!segment.trained) first_trained_ = segment.end;
        before = segment;
      }
    }
  }

  // Follows one period, whose end is the begin of the next.
  double peak() {
    for (size_t i = 0; i < schedule_.period; ++i) {
      const PipeOp& op = schedule_.ops[i];
      const ModelChunk& chunk = schedule_.chunks[op.chunk];
      if (op.kind == PipeOpKind::kForward) {
        if (schedule_.receives_input(op.chunk)) now_ += handed_on_[chunk.front().first];
        for (const Segment& segment : chunk) forward(segment);
      } else {
        for_each_backward(chunk, [&](const Segment& segment) { backward(segment, op.kind); });
      }
    }
    return peak_;
  }

 private:
  void update_peak(double more) { peak_ = std::max(peak_, now_ + more); }

  void keep_graph(size_t block) {
    update_peak(blocks_[block].forward);
    now_ += blocks_[block].kept;
  }

  static bool keeps_graphs(const Segment& segment) { return segment.trained && !segment.recompute; }

  void forward(const Segment& segment) {
    for (size_t i = segment.first; i < segment.end; ++i) {
      if (keeps_graphs(segment)) {
        keep_graph(i);
      } else {
        update_peak(blocks_[i].no_grad + (i > segment.first ? blocks_[i - 1].output : 0));
      }
    }
    now_ += handed_on_[segment.end];
    if (!keeps_graphs(segment)) now_ -= handed_on_[segment.first];
  }

  // Until their own operation, gradients of weights keep what a block's backward frees.
  void backward(const Segment& segment, PipeOpKind kind) {
    if (kind == PipeOpKind::kBackwardWeight) {
      for (size_t i = segment.first; i < segment.end; ++i) free_if_delivered(kind, i);
      return;
    }
    if (segment.recompute) {
      for (size_t i = segment.first; i < segment.end; ++i) keep_graph(i);
    }
    for (size_t i = segment.end; i-- > segment.first;) {
      update_peak(blocks_[i].backward);
      free_if_delivered(kind, i);
    }
    // What a block frees is measured with the gradient of its input, which the first trained block
    // does not compute.
    if (segment.first == first_trained_ && segment.first > 0)
      now_ -= blocks_[segment.first - 1].output;
    if (!segment.recompute) now_ -= handed_on_[segment.first];
  }

  void free_if_delivered(PipeOpKind kind, size_t block) {
    if (delivers_gradients(kind, block, blocks_.size())) now_ -= blocks_[block].freed;
  }

  const StepSchedule& schedule_;
  std::vector<BlockTotals> blocks_;
  // [block]: bytes of its input that a segment hands on to the next one, which begins with this
  // block, and that nothing else holds, as they are in no graph and no saved input.
  std::vector<double> handed_on_;
  size_t first_trained_ = 0;
  double now_ = 0;
  double peak_ = 0;
};

}  // namespace

int64_t activation_bytes(const ChainBytes& chain, const StepSchedule& schedule, size_t num_blocks,
                         int64_t tokens) {
  return static_cast<int64_t>(PeakTracker(chain, schedule, num_blocks, tokens).peak());
}

int64_t evaluation_bytes(const ChainBytes& chain, int64_t tokens) {
  const double first = chain.first.no_grad.at(tokens);
  double layer = chain.middle.no_grad.at(tokens);
  for (const BlockBytes& other : chain.layers) layer = std::max(layer, other.no_grad.at(tokens));
  const double middle = chain.first.output.at(tokens) + layer;
  const double last = chain.middle.output.at(tokens) + last_block_at(chain, tokens).no_grad;
  return static_cast<int64_t>(std::max({first, middle, last}));
}

}  // namespace zeroth::engine
