// How the ranks of a save tell each other what they have done.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/describe_exception.h"
#include "base/error.h"

namespace zeroth::checkpoint {

class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What each rank gave, by rank, on all of them. Throws an Error where a rank is lost. Collective.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
};

// A program of one rank.
class SingleRankGroup : public RankGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
};

// The same on all ranks, none of which waits for another one: they may go on with something else.
class VoteFailed : public Error {
 public:
  using Error::Error;
};

// Each rank says why it failed, if it did. Where one has, all throw VoteFailed, which names `what`,
// each such rank and its reason. Returns what each rank had to tell otherwise. Collective.
std::vector<std::string> commit_vote(RankGroup& ranks, std::string_view what,
                                     const std::optional<std::string>& failure,
                                     const std::string& answer = "");

// What `action` throws, in words; nothing where it throws nothing.
template <typename Action>
std::optional<std::string> capture_failure(Action action) {
  try {
    action();
    return std::nullopt;
  } catch (const std::exception& error) {
    return describe_exception(error);
  }
}

// Does `action` on this rank, then votes. What it throws counts as its failure. Collective.
template <typename Action>
void run_on_all_ranks(RankGroup& ranks, std::string_view what, Action action) {
  (void)commit_vote(ranks, what, capture_failure(action));
}

}  // namespace zeroth::checkpoint
