#include "comm/signed_store.h"

#include <c10/util/hash.h>

#include <charconv>
#include <string_view>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/error.h"

namespace zeroth::comm {
namespace {

using Keys = std::vector<std::string>;
using Value = std::vector<uint8_t>;

constexpr size_t kDigestSize = 40;

class SignedStore final : public c10d::Store {
 public:
  SignedStore(c10::intrusive_ptr<c10d::Store> store, std::string secret, std::string run)
      : store_(std::move(store)), secret_(std::move(secret)), run_(std::move(run)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return make_signed_store(store_->clone(), secret_, run_);
  }

  void set(const std::string& key, const Value& value) override {
    const std::string digest = digest_of(key, {value.begin(), value.end()});
    Value sealed = value;
    sealed.insert(sealed.end(), digest.begin(), digest.end());
    store_->set(key, sealed);
  }

  Value get(const std::string& key) override {
    Value value = store_->get(key);
    const size_t size = value.size() - std::min(value.size(), kDigestSize);
    const std::string digest(value.begin() + static_cast<std::ptrdiff_t>(size), value.end());
    value.resize(size);
    if (same_digest(digest, digest_of(key, {value.begin(), value.end()}))) return value;
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
  // A value that was signed for another key or another run does not fit.
  std::string digest_of(const std::string& key, const std::string& value) const {
    return keyed_digest(secret_, fmt::format("{}\n{}\n{}:{}", run_, key, value.size(), value));
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::string secret_;
  std::string run_;
};

constexpr size_t kBlock = 64;  // bytes that SHA-1 takes at a time

std::string digest_of(const std::string& text) {
  return c10::sha1(text).str();
}

std::string bytes_of(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(digits.data() + i, digits.data() + i + 2, value, 16);
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

std::string mixed(std::string key, unsigned char pad) {
  for (char& byte : key) byte = static_cast<char>(static_cast<unsigned char>(byte) ^ pad);
  return key;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> make_signed_store(c10::intrusive_ptr<c10d::Store> store,
                                                  std::string secret, std::string run) {
  return c10::make_intrusive<SignedStore>(std::move(store), std::move(secret), std::move(run));
}

std::string keyed_digest(std::string_view secret, std::string_view text) {
  std::string key(secret);
  if (key.size() > kBlock) key = bytes_of(digest_of(key));
  key.resize(kBlock, '\0');
  const std::string inner = digest_of(mixed(key, 0x36).append(text));
  return digest_of(mixed(key, 0x5c) + bytes_of(inner));
}

bool same_digest(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < one.size(); ++i)
    difference |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  return difference == 0;
}

}  // namespace zeroth::comm
