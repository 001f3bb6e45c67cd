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

// PeakTracker follows the memory in use while BlockRunner runs.
class PeakTracker {
 public:
  PeakTracker(const ChainBytes& chain, const std::vector<Segment>& segments, int64_t tokens)
      : segments_(segments), blocks_(segments.back().end, bytes_at(chain.middle, tokens)) {
    blocks_.front() = bytes_at(chain.first, tokens);
    blocks_.back() = last_block_at(chain, tokens);
  }

  double peak() {
    for (size_t i = 0; i < segments_.size(); ++i) forward(i);
    for (size_t i = segments_.size(); i-- > 0 && segments_[i].trained;) backward(i);
    return peak_;
  }

 private:
  void update_peak(double more) { peak_ = std::max(peak_, now_ + more); }

  void keep_graph(size_t block) {
    update_peak(blocks_[block].forward);
    now_ += blocks_[block].kept;
  }

  bool keeps_graphs(size_t segment_index) const {
    return segments_[segment_index].trained && !segments_[segment_index].recompute;
  }

  // Returns the bytes that the previous segment passes to this one and that nothing else holds, as
  // they are in no graph and no saved input.
  double input_bytes(size_t segment_index) const {
    const bool no_grad = segment_index > 0 && !keeps_graphs(segment_index - 1) &&
                         !segments_[segment_index].recompute;
    return no_grad ? blocks_[segments_[segment_index].first - 1].output : 0;
  }

  void forward(size_t segment_index) {
    const Segment& segment = segments_[segment_index];
    now_ += input_bytes(segment_index);
    for (size_t i = segment.first; i < segment.end; ++i) {
      if (keeps_graphs(segment_index)) {
        keep_graph(i);
      } else {
        update_peak(blocks_[i].no_grad + (i > segment.first ? blocks_[i - 1].output : 0));
      }
    }
    if (!keeps_graphs(segment_index)) now_ -= input_bytes(segment_index);
  }

  void backward(size_t segment_index) {
    const Segment& segment = segments_[segment_index];
    if (segment.recompute) {
      for (size_t i = segment.first; i < segment.end; ++i) keep_graph(i);
    }
    for (size_t i = segment.end; i-- > segment.first;) {
      update_peak(blocks_[i].backward);
      now_ -= blocks_[i].freed;
    }
    if (!segment.recompute) now_ -= input_bytes(segment_index);
  }

  const std::vector<Segment>& segments_;
  std::vector<BlockTotals> blocks_;
  double now_ = 0;
  double peak_ = 0;
};

}  // namespace

int64_t activation_bytes(const ChainBytes& chain, const std::vector<Segment>& segments,
                         int64_t tokens) {
  return static_cast<int64_t>(PeakTracker(chain, segments, tokens).peak());
}

int64_t evaluation_bytes(const ChainBytes& chain, int64_t tokens) {
  const double first = chain.first.no_grad.at(tokens);
  const double middle = chain.first.output.at(tokens) + chain.middle.no_grad.at(tokens);
  const double last = chain.middle.output.at(tokens) + last_block_at(chain, tokens).no_grad;
  return static_cast<int64_t>(std::max({first, middle, last}));
}

}  // namespace zeroth::engine
