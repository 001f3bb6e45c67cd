#include "comm/signed_store.h"

#include <doctest/doctest.h>

#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"

namespace zeroth::comm {
namespace {

using Value = std::vector<uint8_t>;

const std::string kSecret = "a secret of the run";

}  // namespace

TEST_CASE("ranks with one secret read what they wrote, whatever bytes are in it") {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto one = make_signed_store(plain, kSecret, "run");
  const auto other = make_signed_store(plain, kSecret, "run")->clone();
  for (const Value& value : {Value{}, Value{0, 255, 10, 0}, Value(100'000, 7)}) {
    one->set("key", value);
    CHECK(other->get("key") == value);
  }
  CHECK(one->add("count", 2) == 2);
  CHECK(other->add("count", 1) == 3);
  CHECK(other->check({"key"}));
}

TEST_CASE("what somebody without the secret wrote, or moved, is not believed") {
  const auto plain = c10::make_intrusive<c10d::HashStore>();
  const auto store = make_signed_store(plain, kSecret, "run");
  const auto is_refused = [&](const std::string& key) {
    CHECK_THROWS_WITH_AS(
        store->get(key),
        doctest::Contains(
            ("'" + key + "' in the store was not written with this rank's secret").c_str()),
        Error);
  };
  plain->set("unsigned", Value{1, 2, 3});
  is_refused("unsigned");
  plain->set("long", Value(100, 'a'));
  is_refused("long");
  make_signed_store(plain, "another secret of a run", "run")->set("forged", Value{1});
  is_refused("forged");
  make_signed_store(plain, kSecret, "an earlier run")->set("old", Value{1});
  is_refused("old");
  store->set("here", Value{1});
  plain->set("there", plain->get("here"));
  is_refused("there");
  Value changed = plain->get("here");
  changed[0] = 2;
  plain->set("here", changed);
  is_refused("here");
}

TEST_CASE("digests are those of RFC 2202") {
  CHECK(keyed_digest(std::string(20, '\x0b'), "Hi There") ==
        "b617318655057264e28bc0b6fb378c8ef146be00");
  CHECK(keyed_digest("Jefe", "what do ya want for nothing?") ==
        "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
  CHECK(keyed_digest(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "125d7342b9ac11cd91a39af48aa17b4f63f175d3");
  CHECK(keyed_digest(std::string(80, '\xaa'),
                     "Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data") ==
        "e8e99d0f45237d786d6bbaa7965c7808bbff1a91");
}

TEST_CASE("digests are the same only when all of their characters are") {
  CHECK(same_digest("abc", "abc"));
  CHECK_FALSE(same_digest("abc", "abd"));
  CHECK_FALSE(same_digest("abc", "ab"));
  CHECK_FALSE(same_digest("", "a"));
}

}  // namespace zeroth::comm
