#include "zero/grad_exchange.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "zero/grad_views.h"

namespace zeroth::zero {

GradExchange::GradExchange(comm::Group& group, const GradReducerOptions& options, BufferPool& pool)
    : group_(group),
      options_(options),
      pool_(pool),
      in_flight_(options.max_in_flight, options.bucket_elements,
                 [this](std::vector<Piece> pieces) {
                   for (Piece& piece : pieces) finish(piece);
                 }),
      landing_(options.max_in_flight, options.bucket_elements, [this](Piece piece) {
        options_.landing->order(piece.landed);
        give_back(piece);
      }) {}

void GradExchange::start(const Transfer& transfer) {
  const int64_t numel = transfer.whole.numel();
  for (const torch::Tensor& target : {transfer.target, transfer.host}) {
    ZEROTH_CHECK(numel > 0 && (!target.defined() || target.numel() == transfer.range.size()),
                 "{} elements, {} wanted, {} in the target", numel, transfer.range.size(),
                 target.numel());
  }
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
  aim(piece, transfer, columns);
  piece.sent = transfer.whole;
  if (columns.size() < transfer.range.size() || piece.sent.scalar_type() != options_.wire) {
    piece.sent = pool_.take_tensor(ranks * columns.size(), options_.wire);
    piece.borrowed.push_back(piece.sent);
    piece.sent.view({ranks, -1})
        .copy_(transfer.whole.view({ranks, -1}).narrow(1, columns.begin, columns.size()));
  }
  // The sum lands in the target itself where it may.
  const bool direct = !transfer.add && piece.target.defined() &&
                      piece.target.scalar_type() == options_.wire &&
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
    aim(piece, transfer, {begin - transfer.range.begin, end - transfer.range.begin});
  }
  return piece;
}

void GradExchange::aim(Piece& piece, const Transfer& transfer, const Range& part) {
  const auto cut = [&](const torch::Tensor& target) {
    return target.defined() ? target.narrow(0, part.begin, part.size()) : target;
  };
  piece.target = cut(transfer.target);
  piece.host = cut(transfer.host);
  piece.squared = transfer.squared;
}

void GradExchange::finish(Piece& piece) {
  piece.pending.wait();
  const torch::Tensor received = std::exchange(piece.received, torch::Tensor());
  if (received.defined()) {
    if (piece.squared.defined()) piece.squared.add_(squared_norm({received}, received.device()));
    if (piece.target.defined() && received.data_ptr() != piece.target.data_ptr()) {
      piece.add ? piece.target.add_(received) : piece.target.copy_(received);
    }
    if (piece.host.defined()) {
      piece.landed = options_.landing->land(received, piece.host, piece.add);
    }
  }
  if (!options_.landing) return give_back(piece);
  // In this order also what did not land: it may share memory with what did.
  landing_.push(std::exchange(piece, {}), received.numel());
}

void GradExchange::give_back(Piece& piece) {
  for (torch::Tensor& tensor : piece.borrowed) pool_.give_tensor(std::move(tensor));
  piece.borrowed.clear();
}

void GradExchange::drain() {
  in_flight_.drain();
  landing_.drain();
  if (options_.landing) options_.landing->finish();
}

}  // namespace zeroth::zero
