#include "comm/exchange.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "comm/reduce_parts.h"

namespace zeroth::comm {
namespace {

constexpr size_t kAlignment = 64;
// Below it every rank reduces everything for itself: one round instead of two.
constexpr size_t kSmallBytes = 16 << 10;

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (to == from || bytes == 0) return;
  std::memcpy(to, from, bytes);
}

uint64_t pieces_of(int64_t elements, int64_t per_piece) {
  return static_cast<uint64_t>((elements + per_piece - 1) / per_piece);
}

// A contiguous tensor as memory.
struct Bytes {
  explicit Bytes(const torch::Tensor& source)
      : tensor(source),
        data(static_cast<std::byte*>(source.data_ptr())),
        element(source.element_size()) {
    ZEROTH_CHECK(source.is_cpu() && source.is_contiguous(), "not a contiguous CPU tensor: {}",
                 source.toString());
  }
  std::byte* at(int64_t index) const { return data + static_cast<size_t>(index) * element; }
  size_t size(int64_t elements) const { return static_cast<size_t>(elements) * element; }
  torch::Tensor view(std::byte* memory, int64_t elements) const {
    return at::from_blob(memory, {elements}, tensor.scalar_type());
  }

  torch::Tensor tensor;
  std::byte* data;
  size_t element;
};

struct Span {
  int64_t begin;
  int64_t size;
};

// What all-reduce and reduce-scatter share: each rank reduces one slice of a piece, which it finds
// in the peers' slots (in the lane of its rank) and in its own tensor.
class Reducing : public Exchange {
 protected:
  // `lanes`: ranks, or one less where a rank needs none for itself.
  Reducing(SharedRing& ring, uint64_t first, Reduce op, const torch::Tensor& source, int lanes)
      : Exchange(ring, first),
        op_(op),
        source_(source),
        lanes_(lanes),
        lane_bytes_(ring.slot_bytes() / static_cast<size_t>(lanes) / kAlignment * kAlignment) {}

  int64_t lane_elements() const { return static_cast<int64_t>(lane_bytes_ / source_.element); }
  std::byte* lane(int rank, uint64_t piece, int of) const {
    const int index = of - (lanes_ < ring_.ranks() && of > rank ? 1 : 0);
    return ring_.slot(rank, piece) + lane_bytes_ * static_cast<size_t>(index);
  }
  // Elements of `source_` that `rank` reduces in the piece.
  virtual Span slice(uint64_t piece, int rank) const = 0;

  void put(uint64_t piece) override {
    for (int peer = 0; peer < ring_.ranks(); ++peer) {
      const Span part = slice(piece, peer);
      if (peer == ring_.rank()) continue;
      copy_bytes(lane(ring_.rank(), piece, peer), source_.at(part.begin), source_.size(part.size));
    }
  }

  void reduce_to(std::byte* result, uint64_t piece) {
    const Span mine = slice(piece, ring_.rank());
    if (mine.size == 0) return;
    std::vector<torch::Tensor> parts;
    for (int rank = 0; rank < ring_.ranks(); ++rank) {
      std::byte* memory =
          rank == ring_.rank() ? source_.at(mine.begin) : lane(rank, piece, ring_.rank());
      parts.push_back(source_.view(memory, mine.size));
    }
    reduce_parts(op_, source_.view(result, mine.size), parts, scratch_);
  }

  Reduce op_;
  Bytes source_;
  int lanes_;
  size_t lane_bytes_;
  torch::Tensor scratch_;
};

class AllReduce final : public Reducing {
 public:
  AllReduce(SharedRing& ring, uint64_t first, const torch::Tensor& tensor, Reduce op)
      : Reducing(ring, first, op, tensor, ring.ranks()),
        piece_elements_(lane_elements() * ring.ranks()) {
    end_ = first + pieces_of(tensor.numel(), piece_elements_);
  }
  bool has_two_rounds() const override { return true; }

  void take(uint64_t piece) override {
    const int me = ring_.rank();
    const Span mine = slice(piece, me);
    reduce_to(lane(me, piece, me), piece);
    copy_bytes(source_.at(mine.begin), lane(me, piece, me), source_.size(mine.size));
  }

  void finish(uint64_t piece) override {
    for (int peer = 0; peer < ring_.ranks(); ++peer) {
      if (peer == ring_.rank()) continue;
      const Span part = slice(piece, peer);
      copy_bytes(source_.at(part.begin), lane(peer, piece, peer), source_.size(part.size));
    }
  }

 private:
  Span slice(uint64_t piece, int rank) const override {
    const int64_t begin = static_cast<int64_t>(piece - first_) * piece_elements_;
    const int64_t size = std::min(piece_elements_, source_.tensor.numel() - begin);
    const int64_t step = static_cast<int64_t>(kAlignment);
    const int64_t share = ((size + ring_.ranks() - 1) / ring_.ranks() + step - 1) / step * step;
    const int64_t from = std::min(size, rank * std::min(share, lane_elements()));
    const int64_t to = std::min(size, (rank + 1) * std::min(share, lane_elements()));
    return {begin + from, to - from};
  }

  int64_t piece_elements_;
};

class SmallAllReduce final : public Exchange {
 public:
  SmallAllReduce(SharedRing& ring, uint64_t first, const torch::Tensor& tensor, Reduce op)
      : Exchange(ring, first), op_(op), source_(tensor) {
    end_ = first + (tensor.numel() > 0 ? 1 : 0);
  }

  void put(uint64_t piece) override {
    copy_bytes(ring_.slot(ring_.rank(), piece), source_.data, source_.tensor.nbytes());
  }

  void take(uint64_t piece) override {
    const int64_t elements = source_.tensor.numel();
    std::vector<torch::Tensor> parts;
    for (int rank = 0; rank < ring_.ranks(); ++rank) {
      parts.push_back(source_.view(ring_.slot(rank, piece), elements));
    }
    torch::Tensor scratch;
    reduce_parts(op_, source_.view(source_.data, elements), parts, scratch);
  }

 private:
  Reduce op_;
  Bytes source_;
};

class ReduceScatter final : public Reducing {
 public:
  ReduceScatter(SharedRing& ring, uint64_t first, const torch::Tensor& out, const torch::Tensor& in)
      : Reducing(ring, first, Reduce::kSum, in, ring.ranks() - 1), out_(out) {
    end_ = first + pieces_of(out.numel(), lane_elements());
  }

  void take(uint64_t piece) override {
    reduce_to(out_.at(static_cast<int64_t>(piece - first_) * lane_elements()), piece);
  }

 private:
  Span slice(uint64_t piece, int rank) const override {
    const int64_t begin = static_cast<int64_t>(piece - first_) * lane_elements();
    const int64_t numel = out_.tensor.numel();
    return {rank * numel + begin, std::min(lane_elements(), numel - begin)};
  }

  Bytes out_;
};

// All-gather, and broadcast as its case of one source.
class Copying final : public Exchange {
 public:
  static constexpr int kEverybody = -1;

  Copying(SharedRing& ring, uint64_t first, const torch::Tensor& out, const torch::Tensor& in,
          int source)
      : Exchange(ring, first),
        out_(out),
        in_(in),
        source_(source),
        per_piece_(static_cast<int64_t>(ring.slot_bytes() / in_.element)) {
    end_ = first + pieces_of(in.numel(), per_piece_);
  }

  bool takes_from(int peer) const override { return source_ == kEverybody || peer == source_; }

  void put(uint64_t piece) override {
    if (!takes_from(ring_.rank())) return;
    const Span part = part_of(piece);
    copy_bytes(ring_.slot(ring_.rank(), piece), in_.at(part.begin), in_.size(part.size));
    if (source_ == kEverybody) {
      copy_bytes(out_.at(ring_.rank() * in_.tensor.numel() + part.begin), in_.at(part.begin),
                 in_.size(part.size));
    }
  }

  void take(uint64_t piece) override {
    const Span part = part_of(piece);
    for (int peer = 0; peer < ring_.ranks(); ++peer) {
      if (peer == ring_.rank() || !takes_from(peer)) continue;
      const int64_t begin = source_ == kEverybody ? peer * in_.tensor.numel() : 0;
      copy_bytes(out_.at(begin + part.begin), ring_.slot(peer, piece), in_.size(part.size));
    }
  }

 private:
  Span part_of(uint64_t piece) const {
    const int64_t begin = static_cast<int64_t>(piece - first_) * per_piece_;
    return {begin, std::min(per_piece_, in_.tensor.numel() - begin)};
  }

  Bytes out_, in_;
  int source_;
  int64_t per_piece_;
};

// A lane of its slot for each peer.
class AllToAll final : public Exchange {
 public:
  AllToAll(SharedRing& ring, uint64_t first, const torch::Tensor& out, const torch::Tensor& in)
      : Exchange(ring, first),
        out_(out),
        in_(in),
        part_(in.numel() / ring.ranks()),
        lane_bytes_(ring.slot_bytes() / static_cast<size_t>(ring.ranks()) / kAlignment *
                    kAlignment),
        per_piece_(static_cast<int64_t>(lane_bytes_ / in_.element)) {
    end_ = first + pieces_of(part_, per_piece_);
  }

  void put(uint64_t piece) override {
    const int me = ring_.rank();
    for (int peer = 0; peer < ring_.ranks(); ++peer) {
      const auto [begin, size] = part_for(piece, peer);
      std::byte* to = peer == me ? out_.at(begin) : lane(me, piece, peer);
      copy_bytes(to, in_.at(begin), in_.size(size));
    }
  }

  void take(uint64_t piece) override {
    for (int peer = 0; peer < ring_.ranks(); ++peer) {
      if (peer == ring_.rank()) continue;
      const auto [begin, size] = part_for(piece, peer);
      copy_bytes(out_.at(begin), lane(peer, piece, ring_.rank()), in_.size(size));
    }
  }

 private:
  Span part_for(uint64_t piece, int peer) const {
    const int64_t begin = static_cast<int64_t>(piece - first_) * per_piece_;
    return {peer * part_ + begin, std::min(per_piece_, part_ - begin)};
  }
  std::byte* lane(int rank, uint64_t piece, int peer) const {
    return ring_.slot(rank, piece) + lane_bytes_ * static_cast<size_t>(peer);
  }

  Bytes out_, in_;
  int64_t part_;  // elements of each rank for each
  size_t lane_bytes_;
  int64_t per_piece_;
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(SharedRing& ring, uint64_t first,
                                        const Collective& collective) {
  const auto& [kind, out, in, what, op, root] = collective;
  switch (kind) {
    case Collective::Kind::kAllReduce:
      if (out.nbytes() <= std::min(kSmallBytes, ring.slot_bytes()))
        return std::make_unique<SmallAllReduce>(ring, first, out, op);
      return std::make_unique<AllReduce>(ring, first, out, op);
    case Collective::Kind::kAllGather:
      return std::make_unique<Copying>(ring, first, out, in, Copying::kEverybody);
    case Collective::Kind::kReduceScatter:
      return std::make_unique<ReduceScatter>(ring, first, out, in);
    case Collective::Kind::kBroadcast:
      return std::make_unique<Copying>(ring, first, out, in, root);
    case Collective::Kind::kAllToAll:
      return std::make_unique<AllToAll>(ring, first, out, in);
  }
  throw InternalError("a collective of no kind");
}

}  // namespace zeroth::comm
