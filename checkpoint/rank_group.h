// Communication among the ranks of a save about their results.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace zeroth::checkpoint {

class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns what each rank passed, by rank, on all ranks. Throws an Error if a rank is lost.
  // Collective.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
};

// A SingleRankGroup is a program of one rank.
class SingleRankGroup : public RankGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
};

// VoteFailed is thrown alike on all ranks and leaves none waiting: they can continue with other
// work.
class VoteFailed : public Error {
 public:
  using Error::Error;
};

// Exchanges failures. Throws VoteFailed on all ranks if any rank passes a `failure`; the message
// names `what`, each failed rank and its reason. Otherwise returns each rank's `answer`.
// Collective.
std::vector<std::string> commit_vote(RankGroup& ranks, std::string_view what,
                                     const std::optional<std::string>& failure,
                                     const std::string& answer = "");

// Returns the message of what `action` throws; nothing if it does not throw.
template <typename Action>
std::optional<std::string> capture_failure(Action action) {
  try {
    action();
    return std::nullopt;
  } catch (const std::exception& error) {
    return describe_exception(error);
  }
}

// Runs `action` on this rank, then votes. An exception counts as this rank's failure. Collective.
template <typename Action>
void run_on_all_ranks(RankGroup& ranks, std::string_view what, Action action) {
  (void)commit_vote(ranks, what, capture_failure(action));
}

}  // namespace zeroth::checkpoint
