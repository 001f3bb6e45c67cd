// Error messages about an input: a list of errors in one message, and suggestions for a misspelled
// name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace zeroth {

// Maximum number of errors about one input that a message shows. A file or command line of another
// kind has thousands of errors.
inline constexpr size_t kMaxErrors = 20;

// Returns the first errors, printable, each but the first on its own indented line, followed by
// "and 3 more" if there are more.
std::string listed(const std::vector<std::string>& errors, size_t max_shown = kMaxErrors);

// Returns the number of insertions, deletions, substitutions and swaps of neighbors between two
// texts, ignoring case.
size_t edit_distance(std::string_view left, std::string_view right);

// Returns the candidate nearest to `name`, the first of equals. Returns an empty name if none is
// near enough.
std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates);

// A SuggestionBudget limits the calls of nearest_name() for one input. A file of another kind has
// thousands of unknown names, for which a few suggestions are enough.
class SuggestionBudget {
 public:
  static constexpr int kMax = 20;

  bool take() { return made_ < kMax && ++made_ > 0; }

 private:
  int made_ = 0;
};

}  // namespace zeroth
