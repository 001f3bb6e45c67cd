#include "comm/bootstrap/signed_store.h"

#include <algorithm>
#include <string_view>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"

namespace zeroth::comm {
namespace {

using Keys = std::vector<std::string>;
using Value = std::vector<uint8_t>;

constexpr size_t kDigestBytes = sizeof(Sha256::Digest);

class SignedStore final : public c10d::Store {
 public:
  SignedStore(c10::intrusive_ptr<c10d::Store> store, const HmacKey& key, std::string run)
      : store_(std::move(store)), key_(key), run_(std::move(run)) {}

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

  int64_t add(const std::string& key, int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const Keys& keys) override { return store_->check(keys); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const Keys& keys) override { store_->wait(keys); }
  void wait(const Keys& keys, const std::chrono::milliseconds& timeout) override {
    store_->wait(keys, timeout);
  }
  const std::chrono::milliseconds& getTimeout() const noexcept override {
    return store_->getTimeout();
  }
  void setTimeout(const std::chrono::milliseconds& timeout) override {
    store_->setTimeout(timeout);
  }

 private:
  // Computes the HMAC. A value that was signed for another key or another run does not match.
  Sha256::Digest digest_of(const std::string& key, const Value& value) const {
    const std::string head = fmt::format("{}\n{}\n{}:", run_, key, value.size());
    return key_.digest(head,
                       std::string_view(reinterpret_cast<const char*>(value.data()), value.size()));
  }

  c10::intrusive_ptr<c10d::Store> store_;
  HmacKey key_;
  std::string run_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> make_signed_store(c10::intrusive_ptr<c10d::Store> store,
                                                  const std::string& secret, std::string run) {
  return c10::make_intrusive<SignedStore>(std::move(store), HmacKey(secret), std::move(run));
}

}  // namespace zeroth::comm
