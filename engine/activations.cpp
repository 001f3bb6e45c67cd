#include "engine/activations.h"

#include <algorithm>

namespace zeroth::engine {
namespace {

// BlockBytes of a number of tokens.
struct Bytes {
  double output = 0, alone = 0, forward = 0, kept = 0, backward = 0, freed = 0;
};

Bytes bytes_at(const BlockBytes& block, int64_t tokens) {
  return {.output = block.output.at(tokens),
          .alone = block.alone.at(tokens),
          .forward = block.forward.at(tokens),
          .kept = block.kept.at(tokens),
          .backward = block.backward.at(tokens),
          .freed = block.freed.at(tokens)};
}

Bytes last_at(const ChainBytes& chain, int64_t tokens) {
  const bool whole = tokens <= chain.chunk_tokens;
  const Bytes chunk = bytes_at(chain.chunked, std::min(tokens, chain.chunk_tokens));
  Bytes last = bytes_at(chain.last, tokens);
  last.alone += chunk.alone;
  last.forward += chunk.forward;
  last.backward += chunk.backward + (whole ? 0 : chunk.kept);
  last.kept += whole ? chunk.kept : 0;
  last.freed += whole ? chunk.freed : 0;
  return last;
}

// What there is while BlockRunner goes its way.
class Walk {
 public:
  Walk(const ChainBytes& chain, const std::vector<Segment>& segments, int64_t tokens)
      : segments_(segments), blocks_(segments.back().end, bytes_at(chain.middle, tokens)) {
    blocks_.front() = bytes_at(chain.first, tokens);
    blocks_.back() = last_at(chain, tokens);
  }

  double most() {
    for (size_t i = 0; i < segments_.size(); ++i) forward(i);
    for (size_t i = segments_.size(); i-- > 0 && segments_[i].trained;) backward(i);
    return most_;
  }

 private:
  void reach(double more) { most_ = std::max(most_, now_ + more); }

  void keep_graph(size_t block) {
    reach(blocks_[block].forward);
    now_ += blocks_[block].kept;
  }

  bool keeps_graphs(size_t number) const {
    return segments_[number].trained && !segments_[number].recompute;
  }

  // What the segment before hands to this one and nothing else holds: no graph, no kept input.
  double handed(size_t number) const {
    const bool alone = number > 0 && !keeps_graphs(number - 1) && !segments_[number].recompute;
    return alone ? blocks_[segments_[number].first - 1].output : 0;
  }

  void forward(size_t number) {
    const Segment& segment = segments_[number];
    now_ += handed(number);
    for (size_t i = segment.first; i < segment.end; ++i) {
      if (keeps_graphs(number)) {
        keep_graph(i);
      } else {
        reach(blocks_[i].alone + (i > segment.first ? blocks_[i - 1].output : 0));
      }
    }
    if (!keeps_graphs(number)) now_ -= handed(number);
  }

  void backward(size_t number) {
    const Segment& segment = segments_[number];
    if (segment.recompute) {
      for (size_t i = segment.first; i < segment.end; ++i) keep_graph(i);
    }
    for (size_t i = segment.end; i-- > segment.first;) {
      reach(blocks_[i].backward);
      now_ -= blocks_[i].freed;
    }
    if (!segment.recompute) now_ -= handed(number);
  }

  const std::vector<Segment>& segments_;
  std::vector<Bytes> blocks_;
  double now_ = 0;
  double most_ = 0;
};

}  // namespace

int64_t activation_bytes(const ChainBytes& chain, const std::vector<Segment>& segments,
                         int64_t tokens) {
  return static_cast<int64_t>(Walk(chain, segments, tokens).most());
}

int64_t evaluation_bytes(const ChainBytes& chain, int64_t tokens) {
  const double first = chain.first.alone.at(tokens);
  const double middle = chain.first.output.at(tokens) + chain.middle.alone.at(tokens);
  const double last = chain.middle.output.at(tokens) + last_at(chain, tokens).alone;
  return static_cast<int64_t>(std::max({first, middle, last}));
}

}  // namespace zeroth::engine
