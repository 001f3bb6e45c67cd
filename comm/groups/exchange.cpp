#include "comm/groups/exchange.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "comm/groups/reduce_parts.h"

namespace zeroth::comm {
namespace {

constexpr size_t kAlignment = 64;
// Up to this size every rank reduces all elements itself: one phase instead of two.
constexpr size_t kSmallBytes = 16 << 10;

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (to == from || bytes == 0) return;
  std::memcpy(to, from, bytes);
}

uint64_t num_chunks(int64_t elements, int64_t per_chunk) {
  return static_cast<uint64_t>((elements + per_chunk - 1) / per_chunk);
}

// The memory of a contiguous tensor.
struct TensorBytes {
  explicit TensorBytes(const torch::Tensor& source)
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

struct ElementRange {
  int64_t begin;
  int64_t size;
};

// A SectionedExchange divides each slot into sections, one for each rank that reads the slot. A
// chunk has a slice of `source` for each rank.
class SectionedExchange : public Exchange {
 protected:
  // `num_sections`: the ranks, or one less if a rank needs none for itself.
  SectionedExchange(SharedRing& ring, uint64_t first, const torch::Tensor& source, int num_sections)
      : Exchange(ring, first),
        source_(source),
        sections_(num_sections),
        section_bytes_(ring.slot_bytes() / static_cast<size_t>(num_sections) / kAlignment *
                       kAlignment) {}

  int64_t section_elements() const {
    return static_cast<int64_t>(section_bytes_ / source_.element);
  }
  std::byte* ring_section(int rank, uint64_t chunk, int of) const {
    const int index = of - (sections_ < ring_.ranks() && of > rank ? 1 : 0);
    return ring_.slot(rank, chunk) + section_bytes_ * static_cast<size_t>(index);
  }
  // Returns the elements of `source_` for `rank` in the chunk. Here `source_` consists of one part
  // for each rank, of which a chunk has as much as a section holds.
  virtual ElementRange slice(uint64_t chunk, int rank) const {
    const int64_t part = source_.tensor.numel() / ring_.ranks();
    const int64_t begin = static_cast<int64_t>(chunk - first_) * section_elements();
    return {rank * part + begin, std::min(section_elements(), part - begin)};
  }

  void publish(uint64_t chunk) override {
    for (int peer = 0; peer < ring_.ranks(); ++peer) {
      if (peer == ring_.rank()) continue;
      const ElementRange part = slice(chunk, peer);
      copy_bytes(ring_section(ring_.rank(), chunk, peer), source_.at(part.begin),
                 source_.size(part.size));
    }
  }

  // Reduces this rank's slice, which it reads from the peers' slots and from its own tensor.
  void reduce_to(std::byte* result, uint64_t chunk, ReduceOp op) {
    const ElementRange mine = slice(chunk, ring_.rank());
    if (mine.size == 0) return;
    std::vector<torch::Tensor> parts;
    for (int rank = 0; rank < ring_.ranks(); ++rank) {
      std::byte* memory =
          rank == ring_.rank() ? source_.at(mine.begin) : ring_section(rank, chunk, ring_.rank());
      parts.push_back(source_.view(memory, mine.size));
    }
    reduce_parts(op, source_.view(result, mine.size), parts, scratch_);
  }

  TensorBytes source_;
  int sections_;
  size_t section_bytes_;
  torch::Tensor scratch_;
};

class AllReduce final : public SectionedExchange {
 public:
  AllReduce(SharedRing& ring, uint64_t first, const torch::Tensor& tensor, ReduceOp op)
      : SectionedExchange(ring, first, tensor, ring.ranks()),
        op_(op),
        chunk_elements_(section_elements() * ring.ranks()) {
    end_ = first + num_chunks(tensor.numel(), chunk_elements_);
  }
  bool has_two_phases() const override { return true; }

  void consume(uint64_t chunk) override {
    const int me = ring_.rank();
    const ElementRange mine = slice(chunk, me);
    reduce_to(ring_section(me, chunk, me), chunk, op_);
    copy_bytes(source_.at(mine.begin), ring_section(me, chunk, me), source_.size(mine.size));
  }

  void finish(uint64_t chunk) override {
    for (int peer = 0; peer < ring_.ranks(); ++peer) {
      if (peer == ring_.rank()) continue;
      const ElementRange part = slice(chunk, peer);
      copy_bytes(source_.at(part.begin), ring_section(peer, chunk, peer), source_.size(part.size));
    }
  }

 private:
  ElementRange slice(uint64_t chunk, int rank) const override {
    const int64_t begin = static_cast<int64_t>(chunk - first_) * chunk_elements_;
    const int64_t size = std::min(chunk_elements_, source_.tensor.numel() - begin);
    const int64_t step = static_cast<int64_t>(kAlignment);
    const int64_t share = ((size + ring_.ranks() - 1) / ring_.ranks() + step - 1) / step * step;
    const int64_t from = std::min(size, rank * std::min(share, section_elements()));
    const int64_t to = std::min(size, (rank + 1) * std::min(share, section_elements()));
    return {begin + from, to - from};
  }

  ReduceOp op_;
  int64_t chunk_elements_;
};

class SmallAllReduce final : public Exchange {
 public:
  SmallAllReduce(SharedRing& ring, uint64_t first, const torch::Tensor& tensor, ReduceOp op)
      : Exchange(ring, first), op_(op), source_(tensor) {
    end_ = first + (tensor.numel() > 0 ? 1 : 0);
  }

  void publish(uint64_t chunk) override {
    copy_bytes(ring_.slot(ring_.rank(), chunk), source_.data, source_.tensor.nbytes());
  }

  void consume(uint64_t chunk) override {
    const int64_t elements = source_.tensor.numel();
    std::vector<torch::Tensor> parts;
    for (int rank = 0; rank < ring_.ranks(); ++rank) {
      parts.push_back(source_.view(ring_.slot(rank, chunk), elements));
    }
    torch::Tensor scratch;
    reduce_parts(op_, source_.view(source_.data, elements), parts, scratch);
  }

 private:
  ReduceOp op_;
  TensorBytes source_;
};

class ReduceScatter final : public SectionedExchange {
 public:
  ReduceScatter(SharedRing& ring, uint64_t first, const torch::Tensor& out, const torch::Tensor& in)
      : SectionedExchange(ring, first, in, ring.ranks() - 1), out_(out) {
    end_ = first + num_chunks(out.numel(), section_elements());
  }

  void consume(uint64_t chunk) override {
    const int64_t begin = static_cast<int64_t>(chunk - first_) * section_elements();
    reduce_to(out_.at(begin), chunk, ReduceOp::kSum);
  }

 private:
  TensorBytes out_;
};

// A CopyExchange is an all-gather, or a broadcast as its case of one source.
class CopyExchange final : public Exchange {
 public:
  static constexpr int kAllRanks = -1;

  CopyExchange(SharedRing& ring, uint64_t first, const torch::Tensor& out, const torch::Tensor& in,
               int source)
      : Exchange(ring, first),
        out_(out),
        in_(in),
        source_(source),
        per_chunk_(static_cast<int64_t>(ring.slot_bytes() / in_.element)) {
    end_ = first + num_chunks(in.numel(), per_chunk_);
  }

  bool reads_from(int peer) const override { return source_ == kAllRanks || peer == source_; }

  void publish(uint64_t chunk) override {
    if (!reads_from(ring_.rank())) return;
    const ElementRange part = part_of(chunk);
    copy_bytes(ring_.slot(ring_.rank(), chunk), in_.at(part.begin), in_.size(part.size));
    if (source_ == kAllRanks) {
      copy_bytes(out_.at(ring_.rank() * in_.tensor.numel() + part.begin), in_.at(part.begin),
                 in_.size(part.size));
    }
  }

  void consume(uint64_t chunk) override {
    const ElementRange part = part_of(chunk);
    for (int peer = 0; peer < ring_.ranks(); ++peer) {
      if (peer == ring_.rank() || !reads_from(peer)) continue;
      const int64_t begin = source_ == kAllRanks ? peer * in_.tensor.numel() : 0;
      copy_bytes(out_.at(begin + part.begin), ring_.slot(peer, chunk), in_.size(part.size));
    }
  }

 private:
  ElementRange part_of(uint64_t chunk) const {
    const int64_t begin = static_cast<int64_t>(chunk - first_) * per_chunk_;
    return {begin, std::min(per_chunk_, in_.tensor.numel() - begin)};
  }

  TensorBytes out_, in_;
  int source_;
  int64_t per_chunk_;
};

class AllToAll final : public SectionedExchange {
 public:
  AllToAll(SharedRing& ring, uint64_t first, const torch::Tensor& out, const torch::Tensor& in)
      : SectionedExchange(ring, first, in, ring.ranks()), out_(out) {
    end_ = first + num_chunks(in.numel() / ring.ranks(), section_elements());
  }

  void publish(uint64_t chunk) override {
    SectionedExchange::publish(chunk);
    const ElementRange own = slice(chunk, ring_.rank());
    copy_bytes(out_.at(own.begin), source_.at(own.begin), source_.size(own.size));
  }

  void consume(uint64_t chunk) override {
    for (int peer = 0; peer < ring_.ranks(); ++peer) {
      if (peer == ring_.rank()) continue;
      const ElementRange part = slice(chunk, peer);
      copy_bytes(out_.at(part.begin), ring_section(peer, chunk, ring_.rank()),
                 source_.size(part.size));
    }
  }

 private:
  TensorBytes out_;
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(SharedRing& ring, uint64_t first,
                                        const Collective& collective) {
  const auto& [kind, out, in, what, op, root] = collective;
  switch (kind) {
    case Collective::OpType::kAllReduce:
      if (out.nbytes() <= std::min(kSmallBytes, ring.slot_bytes()))
        return std::make_unique<SmallAllReduce>(ring, first, out, op);
      return std::make_unique<AllReduce>(ring, first, out, op);
    case Collective::OpType::kAllGather:
      return std::make_unique<CopyExchange>(ring, first, out, in, CopyExchange::kAllRanks);
    case Collective::OpType::kReduceScatter:
      return std::make_unique<ReduceScatter>(ring, first, out, in);
    case Collective::OpType::kBroadcast:
      return std::make_unique<CopyExchange>(ring, first, out, in, root);
    case Collective::OpType::kAllToAll:
      return std::make_unique<AllToAll>(ring, first, out, in);
  }
  throw InternalError("unknown collective");
}

}  // namespace zeroth::comm
