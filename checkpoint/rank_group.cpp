#include "checkpoint/rank_group.h"

#include <fmt/format.h>

#include "base/text/diagnostics.h"

namespace zeroth::checkpoint {

std::vector<std::string> commit_vote(RankGroup& ranks, std::string_view what,
                                     const std::optional<std::string>& failure,
                                     const std::string& answer) {
  std::vector<std::string> answers = ranks.gather(failure ? "-" + *failure : "+" + answer);
  ZEROTH_CHECK(std::ssize(answers) == ranks.size(), "{} answers of {} ranks", answers.size(),
               ranks.size());
  std::vector<std::string> failures;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    const bool failed = !answers[rank].starts_with('+');
    if (!answers[rank].empty()) answers[rank].erase(0, 1);
    if (failed) failures.push_back(fmt::format("rank {}: {}", rank, answers[rank]));
  }
  if (!failures.empty()) throw VoteFailed("{} failed: {}", what, listed(failures));
  return answers;
}

}  // namespace zeroth::checkpoint
