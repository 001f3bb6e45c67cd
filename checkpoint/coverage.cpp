#include "checkpoint/coverage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "base/printable.h"

namespace zeroth::checkpoint {
namespace {

struct Placed {
  const Piece* piece;
  const std::string* file;
};

using Name = std::pair<std::string, std::string>;  // tensor, state

std::string text_of(const Placed& placed) {
  return fmt::format("{} in {}", checkpoint::text_of(placed.piece->box, placed.piece->range),
                     *placed.file);
}

// A random measure on the elements of a tensor: that of a box is the product, over its dimensions,
// of differences of random numbers that belong to where it begins and ends. Pieces that cover the
// same elements equally often have the same sum of measures; others have another one but with a
// probability of about 2^-55, because the writer of the pieces does not know the random numbers. So
// n pieces cost n looks and no memory, whatever their boxes.
class Measure {
 public:
  Measure() {
    std::random_device random;
    for (uint64_t& word : seed_) word = uint64_t{random()} << 32 | random();
  }

  uint64_t of(const Box& box, const Range& range) const {
    return minus(of_first(box, range.end), of_first(box, range.begin));
  }
  static uint64_t plus(uint64_t a, uint64_t b) { return reduced(a + b); }

 private:
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;  // all numbers are below it

  static uint64_t reduced(uint64_t number) { return number >= kPrime ? number - kPrime : number; }
  static uint64_t minus(uint64_t a, uint64_t b) { return reduced(a + kPrime - b); }
  static uint64_t times(uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return reduced((static_cast<uint64_t>(product) & kPrime) +
                   static_cast<uint64_t>(product >> 61));
  }

  // Of a position in a dimension: a keyed hash, which mixes as splitmix64 does.
  uint64_t number(size_t dimension, int64_t at) const {
    uint64_t bits = seed_[0];
    for (const uint64_t word :
         {static_cast<uint64_t>(dimension), seed_[1], static_cast<uint64_t>(at)}) {
      bits = (bits ^ word) + 0x9e3779b97f4a7c15;
      bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
      bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
      bits ^= bits >> 31;
    }
    return bits % kPrime;
  }
  uint64_t between(size_t dimension, int64_t begin, int64_t end) const {
    return minus(number(dimension, end), number(dimension, begin));
  }

  // Of the first `count` elements of a box, row by row.
  uint64_t of_first(const Box& box, int64_t count) const {
    const size_t dimensions = box.begin.size();
    if (dimensions == 0) return static_cast<uint64_t>(count);
    std::array<uint64_t, kMaxDimensions + 1> inner{};  // of a whole row from a dimension on
    inner[dimensions] = 1;
    for (size_t i = dimensions; i-- > 0;) {
      inner[i] = times(inner[i + 1], between(i, box.begin[i], box.end[i]));
    }
    int64_t row = box.elements();
    uint64_t sum = 0, outer = 1;
    for (size_t i = 0; i < dimensions && count > 0; ++i) {
      row /= box.end[i] - box.begin[i];
      const int64_t at = box.begin[i] + count / row;
      sum = plus(sum, times(outer, times(between(i, box.begin[i], at), inner[i + 1])));
      outer = times(outer, between(i, at, at + 1));
      count %= row;
    }
    return sum;
  }

  std::array<uint64_t, 2> seed_{};
};

// How many elements of a piece, which has some, are among the first `count` of its tensor: row by
// row, those of a box follow each other as those of the tensor do.
int64_t among_first(const Piece& piece, int64_t count) {
  int64_t row = Box::whole(piece.shape).elements(), row_of_box = piece.box.elements(), found = 0;
  if (count >= row) return piece.elements();
  for (size_t i = 0; i < piece.shape.size(); ++i) {
    const int64_t begin = piece.box.begin[i], end = piece.box.end[i];
    row /= piece.shape[i];
    row_of_box /= end - begin;
    const int64_t at = count / row;
    count %= row;
    found += (std::clamp(at, begin, end) - begin) * row_of_box;
    if (at < begin || at >= end) break;
  }
  return std::clamp(found, piece.range.begin, piece.range.end) - piece.range.begin;
}

// Whether each of the first `count` elements is in exactly one piece.
bool is_covered_once(const Measure& measure, const Shape& shape, const std::vector<Placed>& pieces,
                     int64_t count) {
  uint64_t sum = 0;
  for (const Placed& placed : pieces) {
    const Piece& piece = *placed.piece;
    const int64_t begin = piece.range.begin;
    sum = Measure::plus(sum, measure.of(piece.box, {begin, begin + among_first(piece, count)}));
  }
  return sum == measure.of(Box::whole(shape), {0, count});
}

// The first element, row by row, that no piece or more than one has.
int64_t first_fault(const Measure& measure, const Shape& shape, const std::vector<Placed>& pieces,
                    int64_t all) {
  int64_t good = 0, bad = all;  // so many elements at the begin
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (is_covered_once(measure, shape, pieces, middle) ? good : bad) = middle;
  }
  return good;
}

// `pieces`: those of the tensor that have elements.
std::string complaint_about_cover(const Shape& shape, const std::vector<Placed>& pieces) {
  const int64_t all = Box::whole(shape).elements();
  if (all == 0) return "";
  const Measure measure;
  if (!pieces.empty() && is_covered_once(measure, shape, pieces, all)) return "";
  const int64_t fault = first_fault(measure, shape, pieces, all);
  int64_t held = 0;
  const Placed* first = nullptr;
  for (const Placed& placed : pieces) {
    if (__builtin_add_overflow(held, placed.piece->elements(), &held)) held = INT64_MAX;
    if (among_first(*placed.piece, fault) == among_first(*placed.piece, fault + 1)) continue;
    if (first != nullptr) {
      return fmt::format("{} and {} have elements in common", text_of(*first), text_of(placed));
    }
    first = &placed;
  }
  return fmt::format("its pieces hold {} of {} elements of [{}]; the first that none has is {}",
                     held, all, fmt::join(shape, ", "), fault);
}

std::string complaint_about_state(std::vector<Placed> pieces) {
  const Piece& first = *pieces.front().piece;
  for (const Placed& placed : pieces) {
    const Piece& piece = *placed.piece;
    if (piece.shape == first.shape && piece.dtype == first.dtype) continue;
    return fmt::format("{} [{}] in {}, {} [{}] in {}", first.dtype, fmt::join(first.shape, ", "),
                       *pieces.front().file, piece.dtype, fmt::join(piece.shape, ", "),
                       *placed.file);
  }
  std::erase_if(pieces, [](const Placed& placed) { return placed.piece->elements() == 0; });
  return complaint_about_cover(first.shape, pieces);
}

std::string complaint_about_kind(const WholeState& expected, const Piece& found) {
  if (found.dtype == expected.dtype && found.shape == expected.shape) return "";
  return fmt::format("{} [{}], expected {} [{}]", found.dtype, fmt::join(found.shape, ", "),
                     expected.dtype, fmt::join(expected.shape, ", "));
}

}  // namespace

std::vector<std::string> coverage_complaints(const std::vector<StoredFile>& files,
                                             const std::vector<WholeState>& expected) {
  std::map<Name, std::vector<Placed>> states;
  for (const StoredFile& file : files) {
    for (const StoredPiece& stored : file.pieces) {
      states[{stored.piece.tensor, stored.piece.state}].push_back({&stored.piece, &file.name});
    }
  }
  std::vector<std::string> complaints;
  std::map<Name, std::string> awaited;
  const auto complain = [&](const Name& name, const std::string& complaint) {
    if (complaint.empty()) return;
    complaints.push_back(
        fmt::format("{} of {}: {}", shortened(name.second), shortened(name.first), complaint));
  };
  for (const WholeState& state : expected) {
    const Name name{state.tensor, state.state};
    const auto found = states.find(name);
    const bool empty = element_count(state.shape) == 0;
    awaited[name] = found != states.end() ? complaint_about_kind(state, *found->second[0].piece)
                    : empty               ? ""
                                          : "no rank has a piece of it";
  }
  for (const auto& [name, complaint] : awaited) complain(name, complaint);
  for (const auto& [name, pieces] : states) {
    if (!expected.empty() && !awaited.contains(name)) {
      complain(name, fmt::format("{} is no piece of the model", text_of(pieces.front())));
    }
    complain(name, complaint_about_state(pieces));
  }
  return complaints;
}

}  // namespace zeroth::checkpoint
