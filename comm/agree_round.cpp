#include "comm/agree_round.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/error.h"
#include "base/slow_wait.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

constexpr std::chrono::milliseconds kPause{5};
constexpr size_t kMostNamed = 16;

constexpr const char* kCounter = "zeroth/rounds";
constexpr const char* kRun = "zeroth/run";

std::string join_key(int rank) {
  return fmt::format("zeroth/join/{}", rank);
}

std::string key_of(int64_t round, const char* what) {
  return fmt::format("zeroth/round/{}/{}", round, what);
}

// Two processes never draw the same one.
std::string draw() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

std::string get(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> value = store.get(key);
  return {value.begin(), value.end()};
}

void set(c10d::Store& store, const std::string& key, const std::string& value) {
  store.set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

// What a rank has left: its number, the world that it knows, its restarts.
struct Joined {
  std::string drawn;
  int64_t world_size = 0;
  int64_t restarts = 0;
  bool operator==(const Joined&) const = default;
};

std::string text_of(const Joined& one) {
  return fmt::format("{} {} {}", one.drawn, one.world_size, one.restarts);
}

Joined parse_joined(const std::string& text) {
  Joined one;
  std::istringstream(text) >> one.drawn >> one.world_size >> one.restarts;
  return one;
}

// Rank 0's list: run, round, restarts, what each rank drew.
struct Listed {
  std::string run;
  int64_t number = -1;
  int64_t restarts = 0;
  std::vector<std::string> drawn = {};
};

std::string text_of(const Listed& listed) {
  return fmt::format("{} {} {} {}", listed.run, listed.number, listed.restarts,
                     fmt::join(listed.drawn, " "));
}

Listed parse_listed(const std::string& text) {
  Listed listed;
  std::istringstream words(text);
  words >> listed.run >> listed.number >> listed.restarts;
  for (std::string word; words >> word;) listed.drawn.push_back(std::move(word));
  return listed;
}

AgreedRound agreed(const Listed& listed, int64_t round) {
  return {.number = listed.number,
          .restarts = listed.restarts,
          .run = listed.run,
          .prefix = fmt::format("zeroth/round/{}", round)};
}

class Meeting {
 public:
  Meeting(c10d::Store& store, const RoundMember& me, std::chrono::milliseconds limit)
      : store_(store), me_(me), limit_(limit), mine_{draw(), me.world_size, me.restarts} {}

  AgreedRound join() {
    set(store_, join_key(me_.rank), text_of(mine_));
    std::optional<AgreedRound> done;
    SlowWait slow;
    for (RunningTime time; !done;) {
      done = me_.rank == 0 ? lead() : follow();
      if (done) break;
      const auto waited = time.passed();
      if (waited > limit_) {
        throw Error("rank {} of {}: {} did not come: {}", me_.rank, me_.world_size, missing(),
                    time_limit_text(waited));
      }
      if (slow.due(waited) && me_.on_wait) me_.on_wait(missing(), waited);
      std::this_thread::sleep_for(kPause);
    }
    return *done;
  }

 private:
  std::optional<AgreedRound> lead() {
    const std::vector<Joined> joined = all_joined();
    if (joined.empty()) return std::nullopt;
    if (joined.front() != mine_) {
      throw Error("another rank 0 has come in the place of this one: its round is over");
    }
    // A list of a rank 0 before this one may hide ours: the others look at the newest alone.
    if (joined != listed_ || store_.add(kCounter, 0) != round_) list(joined);
    const int64_t others = store_.add(key_of(round_, "others"), 0);
    if (others < me_.world_size - 1) return std::nullopt;
    set(store_, key_of(round_, "begins"), "1");
    return agreed(list_, round_);
  }

  std::optional<AgreedRound> follow() {
    if (round_ > 0 && store_.check({key_of(round_, "begins")})) return agreed(list_, round_);
    const int64_t newest = store_.add(kCounter, 0);
    if (newest <= round_ || !store_.check({key_of(newest, "ranks")})) return std::nullopt;
    Listed listed = parse_listed(get(store_, key_of(newest, "ranks")));
    const auto place = static_cast<size_t>(me_.rank);
    const bool of_mine = listed.drawn.size() == static_cast<size_t>(me_.world_size) &&
                         listed.drawn[place] == mine_.drawn;
    if (!of_mine) return std::nullopt;
    round_ = newest;
    list_ = std::move(listed);
    store_.add(key_of(round_, "others"), 1);
    return std::nullopt;
  }

  // Of this world; empty while one is missing.
  std::vector<Joined> all_joined() {
    std::vector<Joined> joined;
    for (int rank = 0; rank < me_.world_size; ++rank) {
      if (!store_.check({join_key(rank)})) return {};
      joined.push_back(parse_joined(get(store_, join_key(rank))));
      if (joined.back().world_size != me_.world_size) return {};
    }
    return joined;
  }

  void list(const std::vector<Joined>& joined) {
    listed_ = joined;
    if (!begun_) begun_ = store_.add("zeroth/begun", 1) - 1;
    round_ = store_.add(kCounter, 1);
    if (!store_.check({kRun})) set(store_, kRun, draw());
    list_ = {.run = get(store_, kRun), .number = *begun_};
    for (const Joined& one : joined) {
      list_.restarts = std::max(list_.restarts, one.restarts);
      list_.drawn.push_back(one.drawn);
    }
    set(store_, key_of(round_, "ranks"), text_of(list_));
  }

  std::string missing() {
    std::vector<int> ranks;
    for (int rank = 0; rank < me_.world_size && ranks.size() < kMostNamed; ++rank) {
      if (!store_.check({join_key(rank)})) ranks.push_back(rank);
    }
    return ranks.empty() ? "some ranks of this round"
                         : fmt::format("rank {}", fmt::join(ranks, ", "));
  }

  c10d::Store& store_;
  RoundMember me_;
  std::chrono::milliseconds limit_;
  Joined mine_;
  std::vector<Joined> listed_;    // rank 0
  std::optional<int64_t> begun_;  // rank 0
  int64_t round_ = 0;             // of the newest list that this rank stands in
  Listed list_;
};

}  // namespace

AgreedRound agree_round(c10d::Store& store, const RoundMember& me,
                        std::chrono::milliseconds limit) {
  return Meeting(store, me, limit).join();
}

}  // namespace zeroth::comm
