#include "model/hf/dtype_name.h"

#include <doctest/doctest.h>

#include "base/element_size.h"
#include "base/error.h"

namespace zeroth::model {

TEST_CASE("what is saved has a word, and comes back by it in its size") {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    CHECK(parse_dtype(dtype_name(dtype)) == dtype);
    CHECK(element_size(dtype_name(dtype)) == static_cast<int64_t>(c10::elementSize(dtype)));
  }
  CHECK(dtype_name(torch::kBFloat16) == "BF16");
  CHECK(!parse_dtype("F64"));
  CHECK(!parse_dtype("float32"));
  CHECK_THROWS_AS((void)dtype_name(torch::kInt64), InternalError);
}

}  // namespace zeroth::model
