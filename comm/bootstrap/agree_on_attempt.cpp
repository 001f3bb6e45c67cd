#include "comm/bootstrap/agree_on_attempt.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/error.h"
#include "base/machine/random_bytes.h"
#include "base/machine/timer.h"
#include "comm/bootstrap/key_value_store.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

constexpr std::chrono::milliseconds kPause{5};
constexpr size_t kMaxNamed = 16;
constexpr size_t kIdBytes = 8;

constexpr const char* kCounter = "zeroth/rounds";
constexpr const char* kRun = "zeroth/run";

std::string join_key(int rank) {
  return fmt::format("zeroth/join/{}", rank);
}

std::string attempt_key(int64_t attempt, const char* what) {
  return fmt::format("zeroth/round/{}/{}", attempt, what);
}

// A rank's entry in the store: its nonce, its world size, its restart count.
struct JoinEntry {
  std::string nonce;
  int64_t world_size = 0;
  int64_t restarts = 0;
  bool operator==(const JoinEntry&) const = default;
};

std::string to_string(const JoinEntry& one) {
  return fmt::format("{} {} {}", one.nonce, one.world_size, one.restarts);
}

JoinEntry parse_join_entry(const std::string& text) {
  JoinEntry one;
  std::istringstream(text) >> one.nonce >> one.world_size >> one.restarts;
  return one;
}

// Rank 0's list: the attempt, and each rank's nonce.
struct AttemptList {
  AgreedAttempt attempt = {};
  std::vector<std::string> nonces = {};
};

std::string to_string(const AttemptList& listed) {
  return fmt::format("{} {} {} {}", listed.attempt.run, listed.attempt.index,
                     listed.attempt.restarts, fmt::join(listed.nonces, " "));
}

AttemptList parse_attempt_list(const std::string& text) {
  AttemptList listed{.attempt = {.index = -1}};
  std::istringstream words(text);
  words >> listed.attempt.run >> listed.attempt.index >> listed.attempt.restarts;
  for (std::string word; words >> word;) listed.nonces.push_back(std::move(word));
  return listed;
}

class AttemptAgreement {
 public:
  AttemptAgreement(c10d::Store& store, const AttemptMember& me, std::chrono::milliseconds limit)
      : store_(store),
        me_(me),
        limit_(limit),
        mine_{random_hex(kIdBytes), me.world_size, me.restarts} {}

  AgreedAttempt join() {
    set_text(store_, join_key(me_.rank), to_string(mine_));
    SlowWait slow;
    for (SuspendAwareTimer time;; std::this_thread::sleep_for(kPause)) {
      if (const auto agreed = me_.rank == 0 ? lead() : follow()) return *agreed;
      const auto waited = time.elapsed();
      if (waited > limit_) {
        throw Error("rank {} of {}: {} did not join: {}", me_.rank, me_.world_size, missing(),
                    timeout_message(waited));
      }
      if (slow.due(waited) && me_.on_wait) me_.on_wait(missing(), waited);
    }
  }

 private:
  std::optional<AgreedAttempt> lead() {
    const std::vector<JoinEntry> joined = read_join_entries();
    if (joined.empty()) return std::nullopt;
    if (joined.front() != mine_) {
      throw Error("another rank 0 has replaced this one: its attempt is over");
    }
    // The list of an earlier rank 0 may hide ours: the other ranks read only the newest.
    if (joined != listed_ || store_.add(kCounter, 0) != attempt_) list(joined);
    const int64_t others = store_.add(attempt_key(attempt_, "others"), 0);
    if (others < me_.world_size - 1) return std::nullopt;
    set_text(store_, attempt_key(attempt_, "begins"), "1");
    return agreed();
  }

  std::optional<AgreedAttempt> follow() {
    if (attempt_ > 0 && store_.check({attempt_key(attempt_, "begins")})) return agreed();
    const int64_t newest = store_.add(kCounter, 0);
    if (newest <= attempt_ || !store_.check({attempt_key(newest, "ranks")})) return std::nullopt;
    AttemptList listed = parse_attempt_list(get_text(store_, attempt_key(newest, "ranks")));
    const auto place = static_cast<size_t>(me_.rank);
    const bool of_mine = listed.nonces.size() == static_cast<size_t>(me_.world_size) &&
                         listed.nonces[place] == mine_.nonce;
    if (!of_mine) return std::nullopt;
    attempt_ = newest;
    list_ = std::move(listed);
    store_.add(attempt_key(attempt_, "others"), 1);
    return std::nullopt;
  }

  AgreedAttempt agreed() const {
    AgreedAttempt attempt = list_.attempt;
    attempt.prefix = fmt::format("zeroth/round/{}", attempt_);
    return attempt;
  }

  // Returns the entries of this world; empty while one is missing.
  std::vector<JoinEntry> read_join_entries() {
    std::vector<JoinEntry> joined;
    for (int rank = 0; rank < me_.world_size; ++rank) {
      if (!store_.check({join_key(rank)})) return {};
      joined.push_back(parse_join_entry(get_text(store_, join_key(rank))));
      if (joined.back().world_size != me_.world_size) return {};
    }
    return joined;
  }

  void list(const std::vector<JoinEntry>& joined) {
    listed_ = joined;
    if (!begun_) begun_ = store_.add("zeroth/begun", 1) - 1;
    attempt_ = store_.add(kCounter, 1);
    if (!store_.check({kRun})) set_text(store_, kRun, random_hex(kIdBytes));
    list_ = {.attempt = {.index = *begun_, .run = get_text(store_, kRun)}};
    for (const JoinEntry& one : joined) {
      list_.attempt.restarts = std::max(list_.attempt.restarts, one.restarts);
      list_.nonces.push_back(one.nonce);
    }
    set_text(store_, attempt_key(attempt_, "ranks"), to_string(list_));
  }

  std::string missing() {
    std::vector<int> ranks;
    for (int rank = 0; rank < me_.world_size && ranks.size() < kMaxNamed; ++rank) {
      if (!store_.check({join_key(rank)})) ranks.push_back(rank);
    }
    return ranks.empty() ? "some ranks of this attempt"
                         : fmt::format("rank {}", fmt::join(ranks, ", "));
  }

  c10d::Store& store_;
  AttemptMember me_;
  std::chrono::milliseconds limit_;
  JoinEntry mine_;
  std::vector<JoinEntry> listed_;  // rank 0
  std::optional<int64_t> begun_;   // rank 0
  int64_t attempt_ = 0;            // index of the newest list that contains this rank
  AttemptList list_;
};

}  // namespace

AgreedAttempt agree_on_attempt(c10d::Store& store, const AttemptMember& me,
                               std::chrono::milliseconds limit) {
  return AttemptAgreement(store, me, limit).join();
}

}  // namespace zeroth::comm
