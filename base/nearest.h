// Guesses what a misspelled name was meant to be.
#pragma once

#include <string_view>
#include <vector>

namespace zeroth {

// Insertions, deletions, substitutions and swaps of neighbours between two texts, ignoring case.
size_t edit_distance(std::string_view left, std::string_view right);

// The candidate nearest to `name`, the first of equals; empty when none is near enough to be meant.
std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates);

// How often that is asked about one input. One of some other kind has thousands of unknown names,
// and what the first few were meant to be is enough.
class Guesses {
 public:
  static constexpr int kMost = 20;

  bool another() { return made_ < kMost && ++made_ > 0; }

 private:
  int made_ = 0;
};

}  // namespace zeroth
