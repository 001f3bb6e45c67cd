#include "comm/bootstrap/signed_store.h"

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

}  // namespace zeroth::comm
