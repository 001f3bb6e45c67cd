#include "zero/grad_exchange.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace zeroth::zero {

GradExchange::GradExchange(comm::Group& group, const GradReducerOptions& options, BufferPool& pool)
    : group_(group),
      options_(options),
      pool_(pool),
      in_flight_(options.max_in_flight, options.bucket_elements, [this](std::vector<Piece> pieces) {
        for (Piece& piece : pieces) finish(piece);
      }) {}

void GradExchange::start(const Transfer& transfer) {
  const int64_t numel = transfer.whole.numel();
  ZEROTH_CHECK(numel > 0 && transfer.target.numel() == transfer.range.size(),
               "{} elements, {} wanted, {} in the target", numel, transfer.range.size(),
               transfer.target.numel());
  const bool scatters = options_.reduce_scatter && transfer.range.size() < numel;
  // A scattered piece has columns of every rank's shard.
  const int64_t ranks = scatters ? group_.size() : 1;
  const int64_t length = numel / ranks;
  constexpr int64_t kLeast = FlatLayout::kAlignment;
  const int64_t step = std::max(options_.bucket_elements / ranks / kLeast, int64_t{1}) * kLeast;
  std::vector<Piece> pieces;
  for (int64_t begin = 0; begin < length;) {
    const int64_t end = step < length - begin ? begin + step : length;
    pieces.push_back(scatters ? scatter_piece(transfer, {begin, end})
                              : all_reduce_piece(transfer, {begin, end}));
    pieces.back().add = transfer.add;
    // Without overlap a piece's copy makes room for the next one.
    if (options_.max_in_flight == 0) finish(pieces.back());
    begin = end;
  }
  if (transfer.give_back) pieces.back().borrowed.push_back(transfer.whole);
  in_flight_.push(std::move(pieces), numel);
}

GradExchange::Piece GradExchange::scatter_piece(const Transfer& transfer, const Range& columns) {
  const int64_t ranks = group_.size();
  Piece piece;
  piece.target = transfer.target.narrow(0, columns.begin, columns.size());
  piece.sent = transfer.whole;
  if (columns.size() < transfer.range.size() || piece.sent.scalar_type() != options_.wire) {
    piece.sent = pool_.take_tensor(ranks * columns.size(), options_.wire);
    piece.borrowed.push_back(piece.sent);
    piece.sent.view({ranks, -1})
        .copy_(transfer.whole.view({ranks, -1}).narrow(1, columns.begin, columns.size()));
  }
  // The sum lands in the target itself where it may.
  const bool direct = !transfer.add && piece.target.scalar_type() == options_.wire &&
                      !piece.target.is_alias_of(piece.sent);
  piece.received = direct ? piece.target : pool_.take_tensor(columns.size(), options_.wire);
  if (!direct) piece.borrowed.push_back(piece.received);
  piece.pending = group_.reduce_scatter(piece.received, piece.sent, transfer.what);
  return piece;
}

GradExchange::Piece GradExchange::all_reduce_piece(const Transfer& transfer, const Range& part) {
  Piece piece;
  piece.sent = transfer.whole.narrow(0, part.begin, part.size());
  if (piece.sent.scalar_type() != options_.wire) {
    const torch::Tensor copy = pool_.take_tensor(part.size(), options_.wire);
    piece.sent = copy.copy_(piece.sent);
    piece.borrowed.push_back(piece.sent);
  }
  piece.pending = group_.all_reduce(piece.sent, comm::Reduce::kSum, transfer.what);
  const int64_t begin = std::max(part.begin, transfer.range.begin);
  const int64_t end = std::min(part.end, transfer.range.end);
  if (begin < end) {
    piece.received = piece.sent.narrow(0, begin - part.begin, end - begin);
    piece.target = transfer.target.narrow(0, begin - transfer.range.begin, end - begin);
  }
  return piece;
}

void GradExchange::finish(Piece& piece) {
  piece.pending.wait();
  if (piece.received.defined() && piece.received.data_ptr() != piece.target.data_ptr()) {
    piece.add ? piece.target.add_(piece.received) : piece.target.copy_(piece.received);
  }
  piece.received = torch::Tensor();
  for (torch::Tensor& tensor : piece.borrowed) pool_.give_tensor(std::move(tensor));
  piece.borrowed.clear();
}

}  // namespace zeroth::zero
