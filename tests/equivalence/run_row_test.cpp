#include "tests/equivalence/run_row.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

namespace zeroth::equivalence::run_row_test {

TEST_CASE("one element of padding that is not zero shows, wherever it lies") {
  zero::FlatLayout layout(/*num_shards=*/2);
  layout.add("first", {3, 5});
  layout.add("second", {70});
  const torch::Tensor whole = at::zeros({layout.numel()});
  for (const zero::Slot& slot : layout.slots()) whole.narrow(0, slot.offset, slot.numel).fill_(7);
  CHECK(has_clean_padding(layout, whole));
  const int64_t behind_first = layout.slots()[0].numel;
  const int64_t behind_second = layout.slots()[1].offset + layout.slots()[1].numel;
  for (const int64_t at :
       {behind_first, layout.slots()[1].offset - 1, behind_second, layout.numel() - 1}) {
    torch::Tensor spoilt = whole.clone();
    spoilt[at] = 1;
    CHECK_FALSE(has_clean_padding(layout, spoilt));
  }
}

}  // namespace zeroth::equivalence::run_row_test
