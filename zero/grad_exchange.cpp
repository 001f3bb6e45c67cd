#include "zero/grad_exchange.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "optim/squared_norm.h"
#include "zero/grad_views.h"

namespace zeroth::zero {
namespace {

template <typename Piece>
int64_t elements(const std::vector<Piece>& pieces) {
  int64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.sent.numel();
  return sum;
}

}  // namespace

GradExchange::GradExchange(const GradReducerOptions& options, BufferPool& pool)
    : options_(options),
      pool_(pool),
      in_flight_(options.max_in_flight, options.bucket_elements,
                 [this](std::vector<Piece> pieces) { retire(std::move(pieces)); }),
      landing_(options.max_in_flight, options.bucket_elements,
               [this](std::vector<Piece> pieces) { give_back(std::move(pieces)); }) {}

void GradExchange::start(const Transfer& transfer) {
  const int64_t numel = transfer.whole.numel();
  for (const torch::Tensor& target : {transfer.target, transfer.host}) {
    ZEROTH_CHECK(numel > 0 && (!target.defined() || target.numel() == transfer.range.size()),
                 "{} elements, {} wanted, {} in the target", numel, transfer.range.size(),
                 target.numel());
  }
  const bool scatters = options_.reduce_scatter && transfer.range.size() < numel;
  // A scattered piece has columns of every rank's shard.
  const int64_t ranks = scatters ? transfer.holders.size() : 1;
  const int64_t length = numel / ranks;
  constexpr int64_t kLeast = FlatLayout::kAlignment;
  const int64_t step = std::max(options_.bucket_elements / ranks / kLeast, int64_t{1}) * kLeast;
  std::vector<Piece> pieces;
  for (int64_t begin = 0; begin < length;) {
    const int64_t end = step < length - begin ? begin + step : length;
    pieces.push_back(scatters ? scatter_piece(transfer, {begin, end})
                              : all_reduce_piece(transfer, {begin, end}));
    pieces.back().add = transfer.add;
    if (transfer.give_back && end == length) pieces.back().borrowed.push_back(transfer.whole);
    // Without overlap a piece's copy makes room for the next one.
    if (options_.max_in_flight == 0) push(std::exchange(pieces, {}));
    begin = end;
  }
  if (!pieces.empty()) push(std::move(pieces));
}

void GradExchange::push(std::vector<Piece> pieces) {
  const auto ended = [](const Piece& piece) { return piece.pending.done(); };
  // A sum that is there is taken at once where its buffers are free only when it has landed.
  if (options_.landing && in_flight_.empty() && std::all_of(pieces.begin(), pieces.end(), ended)) {
    return retire(std::move(pieces));
  }
  const int64_t numel = elements(pieces);
  in_flight_.push(std::move(pieces), numel);
}

GradExchange::Piece GradExchange::scatter_piece(const Transfer& transfer, const Range& columns) {
  const int64_t ranks = transfer.holders.size();
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
  piece.pending = transfer.holders.reduce_scatter(piece.received, piece.sent, transfer.what);
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
  piece.pending = transfer.holders.all_reduce(piece.sent, comm::Reduce::kSum, transfer.what);
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

void GradExchange::retire(std::vector<Piece> pieces) {
  if (options_.landing) options_.landing->begin();
  for (Piece& piece : pieces) {
    const device::Point summed = piece.host.defined() ? land(piece) : device::Point();
    if (piece.target.defined() || piece.squared.defined()) take_sum(piece, summed);
  }
  if (!options_.landing) return give_back(std::move(pieces));
  // In this order also what did not land: it may share memory with what did.
  const int64_t numel = elements(pieces);
  landing_.push(std::move(pieces), numel);
}

device::Point GradExchange::land(Piece& piece) {
  // The copy waits for the sum, and not for what the device has been given meanwhile.
  device::CopyStream& copies = options_.landing->copies();
  const bool here = piece.pending.done();
  const device::Point summed = here ? copies.now() : copies.behind([&] { piece.pending.order(); });
  piece.landed = options_.landing->land(piece.received, piece.host, piece.add, summed);
  return here ? device::Point() : summed;
}

void GradExchange::take_sum(Piece& piece, const device::Point& summed) {
  piece.pending.wait();
  if (options_.landing) options_.landing->copies().order(summed);
  const torch::Tensor& sum = piece.received;
  if (piece.squared.defined()) {
    piece.squared.add_(optim::squared_norms({sum}, sum.device()).squeeze(0));
  }
  if (piece.target.defined() && sum.data_ptr() != piece.target.data_ptr()) {
    piece.add ? piece.target.add_(sum) : piece.target.copy_(sum);
  }
}

void GradExchange::give_back(std::vector<Piece> pieces) {
  for (Piece& piece : pieces) {
    piece.pending.wait();
    if (options_.landing) options_.landing->copies().order(piece.landed);
    for (torch::Tensor& tensor : piece.borrowed) pool_.give_tensor(std::move(tensor));
  }
}

void GradExchange::drain() {
  in_flight_.drain();
  landing_.drain();
  if (options_.landing) options_.landing->finish();
}

}  // namespace zeroth::zero
