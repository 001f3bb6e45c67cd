// What is wrong with an input, for messages: many complaints in one, and what a misspelled name was
// meant to be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth {

// Of all that is wrong with one input, so much is shown: a file or a command line of some other
// kind has thousands of mistakes.
inline constexpr size_t kMaxErrors = 20;

// The first complaints, printable, each but the first on an indented line of its own, and "and 3
// more".
std::string listed(const std::vector<std::string>& errors, size_t max_shown = kMaxErrors);

// Insertions, deletions, substitutions and swaps of neighbours between two texts, ignoring case.
size_t edit_distance(std::string_view left, std::string_view right);

// The candidate nearest to `name`, the first of equals; empty when none is near enough to be meant.
std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates);

// How often nearest_name() is asked about one input. A file of some other kind has thousands of
// unknown names, and what the first few were meant to be is enough.
class SuggestionBudget {
 public:
  static constexpr int kMax = 20;

  bool take() { return made_ < kMax && ++made_ > 0; }

 private:
  int made_ = 0;
};

}  // namespace zeroth
