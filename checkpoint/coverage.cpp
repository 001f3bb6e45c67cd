#include "checkpoint/coverage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
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

bool share_elements(const Piece& a, const Piece& b) {
  return !common_runs(a.box, a.range, b.box, b.range).empty();
}

// Sorted by box and range, pieces of one box are compared with their neighbour only, and those of
// other boxes as long as the first dimension lets them meet.
std::optional<std::pair<Placed, Placed>> two_that_overlap(std::vector<Placed> pieces) {
  const auto key = [](const Placed& placed) {
    const Piece& piece = *placed.piece;
    return std::tie(piece.box.begin, piece.box.end, piece.range.begin, piece.range.end);
  };
  std::sort(pieces.begin(), pieces.end(),
            [&](const Placed& a, const Placed& b) { return key(a) < key(b); });
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& one = *pieces[i].piece;
    bool neighbour = true;
    for (size_t j = i + 1; j < pieces.size(); ++j) {
      const Piece& other = *pieces[j].piece;
      const bool same_box = one.box == other.box;
      if (!same_box && !one.shape.empty() && other.box.begin[0] >= one.box.end[0]) break;
      const bool overlap =
          same_box ? std::exchange(neighbour, false) && other.range.begin < one.range.end
                   : share_elements(one, other);
      if (overlap) return std::pair(pieces[i], pieces[j]);
    }
  }
  return std::nullopt;
}

// The first element, row by row, that no piece has.
int64_t first_hole(const Shape& shape, const std::vector<Placed>& pieces) {
  const Box box = Box::whole(shape);
  const Range range{0, box.elements()};
  std::vector<Run> runs;
  for (const Placed& placed : pieces) {
    const auto found = common_runs(box, range, placed.piece->box, placed.piece->range);
    runs.insert(runs.end(), found.begin(), found.end());
  }
  std::sort(runs.begin(), runs.end(),
            [](const Run& a, const Run& b) { return a.wanted < b.wanted; });
  int64_t covered = 0;
  for (const Run& run : runs) {
    if (run.wanted > covered) break;
    covered = std::max(covered, run.wanted + run.count);
  }
  return covered;
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
  if (const auto two = two_that_overlap(pieces)) {
    return fmt::format("{} and {} have elements in common", text_of(two->first),
                       text_of(two->second));
  }
  int64_t held = 0;
  for (const Placed& placed : pieces) held += placed.piece->elements();
  const int64_t all = element_count(first.shape).value_or(0);
  if (held == all) return "";
  return fmt::format("its pieces hold {} of {} elements of [{}]; the first that none has is {}",
                     held, all, fmt::join(first.shape, ", "), first_hole(first.shape, pieces));
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
