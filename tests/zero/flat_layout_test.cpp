#include "zero/flat_layout.h"

#include <doctest/doctest.h>

#include "base/error.h"

namespace zeroth::zero::flat_layout_test {

TEST_CASE("slots begin at aligned offsets and shards are equal") {
  FlatLayout layout(3);
  layout.add("a", {5, 3});
  layout.add("b", {2});
  CHECK(layout.slots()[0].offset == 0);
  CHECK(layout.slots()[0].numel == 15);
  CHECK(layout.slots()[1].offset == 64);
  CHECK(layout.shard_numel() == 64);
  CHECK(layout.numel() == 192);
  CHECK(layout.parameter_numel() == 17);
  CHECK((layout.shard(0) == Range{0, 64}));
  CHECK((layout.shard(2) == Range{128, 192}));
}

TEST_CASE("a parameter smaller than the world leaves shards that hold padding only") {
  FlatLayout layout(8);
  layout.add("a", {3});
  CHECK(layout.shard_numel() == 64);
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

TEST_CASE("a unit of zero-size parameters has shards of padding") {
  FlatLayout layout(2);
  layout.add("empty", {0});
  CHECK(layout.parameter_numel() == 0);
  CHECK(layout.shard_numel() == 64);
  CHECK(FlatLayout(2).shard_numel() == 0);
}

TEST_CASE("a range is cut into runs of matrices and of norm weights and biases") {
  FlatLayout layout(2);
  layout.add("a.weight", {10, 10});  // 0 .. 128 with its padding
  layout.add("b.weight", {64, 2});   // 128 .. 256
  layout.add("b.bias", {2});         // 256 .. 320
  layout.add("norm", {70});          // 320 .. 448
  layout.add("scale", {});           // 448 .. 512
  layout.add("c.weight", {1, 1});    // 512 .. 640, with the padding of the last shard
  CHECK((layout.param_group_ranges({0, layout.numel()}) ==
         std::vector<optim::ParamGroupRange>{{0, 256, true}, {256, 512, false}, {512, 640, true}}));
  CHECK((layout.param_group_ranges(layout.shard(0)) ==
         std::vector<optim::ParamGroupRange>{{0, 256, true}, {256, 320, false}}));
  CHECK((layout.param_group_ranges(layout.shard(1)) ==
         std::vector<optim::ParamGroupRange>{{0, 192, false}, {192, 320, true}}));
  CHECK((layout.parameter_ranges({0, layout.numel()}) ==
         std::vector<optim::ParamGroupRange>{{0, 100, true, 0},
                                             {128, 256, true, 1},
                                             {256, 258, false, 2},
                                             {320, 390, false, 3},
                                             {448, 449, false, 4},
                                             {512, 513, true, 5}}));
  CHECK((layout.parameter_ranges(layout.shard(1)) ==
         std::vector<optim::ParamGroupRange>{
             {0, 70, false, 3}, {128, 129, false, 4}, {192, 193, true, 5}}));
}

TEST_CASE("slots start and shards end at multiples of another alignment") {
  FlatLayout layout(3, /*alignment=*/256);
  layout.add("a", {1});
  layout.add("b", {300});
  layout.add("c", {10});
  CHECK(layout.slots()[1].offset == 256);
  CHECK(layout.slots()[2].offset == 768);
  CHECK(layout.shard_numel() == 512);
  CHECK(layout.numel() == 3 * 512);
}

}  // namespace zeroth::zero::flat_layout_test
