#include "model/hf/dtype_word.h"

#include <doctest/doctest.h>

#include "base/element_size.h"
#include "base/error.h"

namespace zeroth::model {

TEST_CASE("what is saved has a word, and comes back by it in its size") {
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    CHECK(dtype_of_word(word_of(dtype)) == dtype);
    CHECK(element_size(word_of(dtype)) == static_cast<int64_t>(c10::elementSize(dtype)));
  }
  CHECK(word_of(torch::kBFloat16) == "BF16");
  CHECK(!dtype_of_word("F64"));
  CHECK(!dtype_of_word("float32"));
  CHECK_THROWS_AS((void)word_of(torch::kInt64), InternalError);
}

}  // namespace zeroth::model
