#include "zero/flat_layout.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::zero {

TEST_CASE("slots begin at aligned offsets and shards are equal") {
  FlatLayout layout(3);
  layout.add("a", {5, 3});
  layout.add("b", {2});
  CHECK(layout.slots()[0].offset == 0);
  CHECK(layout.slots()[0].numel == 15);
  CHECK(layout.slots()[1].offset == 16);
  CHECK(layout.shard_numel() == 16);
  CHECK(layout.numel() == 48);
  CHECK(layout.parameter_numel() == 17);
  CHECK((layout.shard(0) == Range{0, 16}));
  CHECK((layout.shard(2) == Range{32, 48}));
}

TEST_CASE("a parameter smaller than the world leaves shards that hold padding only") {
  FlatLayout layout(8);
  layout.add("a", {3});
  CHECK(layout.shard_numel() == 16);
  CHECK((layout.overlap(0, layout.shard(0)) == Range{0, 3}));
  CHECK(layout.overlap(0, layout.shard(7)).size() == 0);
}

TEST_CASE("the shards' overlaps cover every element of every slot once") {
  for (const int shards : {1, 2, 3, 4, 7}) {
    FlatLayout layout(shards);
    layout.add("a", {33});
    layout.add("b", {});
    layout.add("c", {16, 4});
    for (size_t slot = 0; slot < 3; ++slot) {
      int64_t next = 0;
      for (int shard = 0; shard < shards; ++shard) {
        const Range part = layout.overlap(slot, layout.shard(shard));
        if (part.size() == 0) continue;
        CHECK(part.begin == next);
        next = part.end;
      }
      CHECK(next == layout.slots()[slot].numel);
    }
  }
}

TEST_CASE("a zero-size parameter has a slot of its own") {
  FlatLayout layout(2);
  layout.add("empty", {0, 4});
  layout.add("b", {1});
  CHECK(layout.slots()[0].numel == 0);
  CHECK(layout.parameter_numel() == 1);
  CHECK_THROWS_AS(layout.shard(2), InternalError);
}

}  // namespace zeroth::zero
