#include "comm/bootstrap/key_value_store.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/error.h"
#include "base/machine/standard_streams.h"
#include "base/machine/timer.h"
#include "base/sha256.h"
#include "base/text/printable.h"
#include "comm/collective_info.h"
#include "comm/time_limit.h"

namespace zeroth::comm {
namespace {

using Keys = std::vector<std::string>;
using Value = std::vector<uint8_t>;
using std::chrono::milliseconds;

constexpr size_t kDigestBytes = sizeof(Sha256::Digest);

// The pause between two polls is a small part of the time waited, as thousands of ranks may poll
// one store.
constexpr milliseconds kMinPause{1}, kMaxPause{200};
constexpr int kPart = 20;
constexpr int kMaxChecked = 4096;  // ranks
constexpr size_t kMaxNamed = 16;

std::string arrival_key(int rank) {
  return fmt::format("come/{}", rank);
}

// A StoreWrapper passes calls on to another store.
class StoreWrapper : public c10d::Store {
 public:
  explicit StoreWrapper(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const Value& value) override { store_->set(key, value); }
  int64_t add(const std::string& key, int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const Keys& keys) override { return store_->check(keys); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const Keys& keys) override { store_->wait(keys); }
  void wait(const Keys& keys, const milliseconds& timeout) override { store_->wait(keys, timeout); }
  const milliseconds& getTimeout() const noexcept override { return store_->getTimeout(); }
  void setTimeout(const milliseconds& timeout) override { store_->setTimeout(timeout); }

 protected:
  c10::intrusive_ptr<c10d::Store> store_;
};

class SignedStore final : public StoreWrapper {
 public:
  SignedStore(c10::intrusive_ptr<c10d::Store> store, const HmacKey& key, std::string run)
      : StoreWrapper(std::move(store)), key_(key), run_(std::move(run)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<SignedStore>(store_->clone(), key_, run_);
  }

  void set(const std::string& key, const Value& value) override {
    const Sha256::Digest digest = digest_of(key, value);
    Value authenticated = value;
    authenticated.insert(authenticated.end(), digest.begin(), digest.end());
    store_->set(key, authenticated);
  }

  Value get(const std::string& key) override {
    Value value = store_->get(key);
    const size_t size = value.size() - std::min(value.size(), kDigestBytes);
    const std::string digest(value.begin() + static_cast<std::ptrdiff_t>(size), value.end());
    value.resize(size);
    if (constant_time_equal(digest, digest_bytes(digest_of(key, value)))) return value;
    throw Error(
        "'{}' in the store was not written with this rank's secret: ZEROTH_SECRET or "
        "ZEROTH_SECRET_FILE differs between the ranks, or a stranger wrote it",
        key);
  }

 private:
  // Computes the HMAC. A value that was signed for another key or another run does not match.
  Sha256::Digest digest_of(const std::string& key, const Value& value) const {
    const std::string head = fmt::format("{}\n{}\n{}:", run_, key, value.size());
    return key_.digest(head,
                       std::string_view(reinterpret_cast<const char*>(value.data()), value.size()));
  }

  HmacKey key_;
  std::string run_;
};

class WaitingStore final : public StoreWrapper {
 public:
  WaitingStore(c10::intrusive_ptr<c10d::Store> store, RankEnv env)
      : StoreWrapper(std::move(store)), env_(std::move(env)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<WaitingStore>(store_->clone(), env_);
  }

  Value get(const std::string& key) override {
    wait({key});
    return store_->get(key);
  }
  void wait(const Keys& keys) override { wait(keys, getTimeout()); }
  void wait(const Keys& keys, const milliseconds& timeout) override {
    SlowWait slow;
    milliseconds pause = kMinPause;
    for (SuspendAwareTimer time; !store_->check(keys); std::this_thread::sleep_for(pause)) {
      const milliseconds waited = time.elapsed();
      if (waited >= timeout) throw Error("{}", timeout_message(waited));
      if (slow.due(waited)) log_missing(keys.front(), waited);
      pause = std::clamp(waited / kPart, kMinPause, kMaxPause);
    }
  }

  Value compareSet(const std::string& key, const Value& current, const Value& wanted) override {
    return store_->compareSet(key, current, wanted);
  }
  bool hasExtendedApi() const override { return store_->hasExtendedApi(); }
  void append(const std::string& key, const Value& value) override { store_->append(key, value); }
  std::vector<Value> multiGet(const Keys& keys) override {
    wait(keys);
    return store_->multiGet(keys);
  }
  void multiSet(const Keys& keys, const std::vector<Value>& values) override {
    store_->multiSet(keys, values);
  }

 private:
  void log_missing(const std::string& key, milliseconds waited) {
    std::vector<int> missing;
    bool lower_rank_arrived = false;
    for (int rank = 0; rank < std::min(env_.world_size, kMaxChecked); ++rank) {
      if (!store_->check({arrival_key(rank)}))
        missing.push_back(rank);
      else
        lower_rank_arrived |= rank < env_.rank;
    }
    if (env_.local_rank > 0 && lower_rank_arrived) return;
    log_wait(env_,
             missing.empty()
                 ? fmt::format("'{}' of another rank; all ranks have joined", shortened(key))
                 : describe_ranks(missing),
             waited);
  }

  RankEnv env_;
};

}  // namespace

void set_text(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, Value(text.begin(), text.end()));
}

std::string get_text(c10d::Store& store, const std::string& key) {
  const Value value = store.get(key);
  return {value.begin(), value.end()};
}

std::string get_text_from(c10d::Store& store, const std::string& key, int rank, int from) {
  try {
    return get_text(store, key);
  } catch (const std::exception& cause) {
    throw Error("rank {}: rank {} did not connect: {}", rank, from, error_message(cause));
  }
}

c10::intrusive_ptr<c10d::Store> make_signed_store(c10::intrusive_ptr<c10d::Store> store,
                                                  const std::string& secret, std::string run) {
  return c10::make_intrusive<SignedStore>(std::move(store), HmacKey(secret), std::move(run));
}

std::string describe_ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  const bool in_a_row = ranks.back() - ranks.front() + 1 == std::ssize(ranks);
  if (in_a_row && ranks.size() > 2)
    return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
  if (ranks.size() <= kMaxNamed) {
    const auto last = ranks.end() - 1;
    return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), last, ", "), *last);
  }
  return fmt::format("ranks {} and {} more",
                     fmt::join(ranks.begin(), ranks.begin() + kMaxNamed, ", "),
                     ranks.size() - kMaxNamed);
}

std::string describe_wait(const RankEnv& env, const std::string& for_whom, milliseconds waited) {
  const std::string where =
      env.bootstrap_ticket ? ""
                           : fmt::format(" at {}:{}", shortened(env.master_addr), env.master_port);
  const std::string by =
      env.rank_variables.empty() ? "" : fmt::format(" (by {})", env.rank_variables);
  return fmt::format(
      "rank {} of {}{} waits for {}{}: {} s so far, up to {} s (--timeout, DEEPSPEED_TIMEOUT){}",
      env.rank, env.world_size, by, for_whom, where, waited.count() / 1000, env.timeout.count(),
      env.bootstrap_ticket || by.empty() ? ""
                                         : "; unset these variables for a process that runs alone");
}

void log_wait(const RankEnv& env, const std::string& for_whom, milliseconds waited) {
  write_all(STDERR_FILENO,
            printable_message(fmt::format("zeroth: {}\n", describe_wait(env, for_whom, waited))));
}

c10::intrusive_ptr<c10d::Store> make_waiting_store(c10::intrusive_ptr<c10d::Store> store,
                                                   const RankEnv& env) {
  store->set(arrival_key(env.rank), Value{'1'});
  RankEnv plain = env;
  plain.bootstrap = nullptr;  // it may hold the store itself
  return c10::make_intrusive<WaitingStore>(std::move(store), std::move(plain));
}

}  // namespace zeroth::comm
