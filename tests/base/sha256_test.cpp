#include "base/sha256.h"

#include <doctest/doctest.h>

#include <random>

namespace zeroth::sha256_test {
namespace {

std::string hash(std::string_view text) {
  return to_hex(Sha256::of(text));
}

std::string hmac(std::string_view key, std::string_view text) {
  return to_hex(HmacKey(key).digest(text));
}

std::string counting_bytes(int first, int last) {
  std::string bytes;
  for (int byte = first; byte <= last; ++byte) bytes.push_back(static_cast<char>(byte));
  return bytes;
}

}  // namespace

TEST_CASE("SHA-256 gives the digests of FIPS 180-4's examples") {
  CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(
      hash("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopq"
           "rlmnopqrsmnopqrstnopqrstu") ==
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(hash(std::string(1'000'000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 of a text does not depend on the pieces in which it comes") {
  std::mt19937 random(7);
  for (const size_t size : {1, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 1000}) {
    CAPTURE(size);
    std::string text;
    for (size_t i = 0; i < size; ++i) text.push_back(static_cast<char>(random()));
    for (int trial = 0; trial < 20; ++trial) {
      Sha256 hash;
      for (size_t at = 0; at < size;) {
        const size_t count = 1 + random() % (size - at);
        hash.add(std::string_view(text).substr(at, count));
        at += count;
      }
      CHECK(hash.finish() == Sha256::of(text));
    }
  }
}

TEST_CASE("HMAC-SHA-256 gives the digests of RFC 4231") {
  CHECK(hmac(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hmac(counting_bytes(1, 25), std::string(50, '\xcd')) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  CHECK(hmac(std::string(20, '\x0c'), "Test With Truncation").substr(0, 32) ==
        "a3b6167473100ee06e0c796c2955552b");
  CHECK(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hmac(std::string(131, '\xaa'),
             "This is a test using a larger than block-size key and a larger than block-size data. "
             "The key needs to be hashed before being used by the HMAC algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_CASE("a key gives the same digest each time, and parts count as one text") {
  const HmacKey key("a key");
  CHECK(key.digest("one", "two") == key.digest("onetwo"));
  CHECK(key.digest("onetwo") == HmacKey("a key").digest("onetwo"));
  CHECK(key.digest("onetwo") != HmacKey("b key").digest("onetwo"));
}

TEST_CASE("secrets are the same only byte for byte") {
  CHECK(constant_time_equal("", ""));
  CHECK(constant_time_equal(std::string("a\0b", 3), std::string("a\0b", 3)));
  CHECK_FALSE(constant_time_equal("abc", "abd"));
  CHECK_FALSE(constant_time_equal("abc", "xbc"));
  CHECK_FALSE(constant_time_equal("abc", "abcd"));
  CHECK_FALSE(constant_time_equal("\xff", "\x7f"));
}

}  // namespace zeroth::sha256_test
