#include "base/tensor_slice.h"

#include <doctest/doctest.h>

namespace zeroth::element_size_test {

TEST_CASE("an element has as many bytes as its word says; other words are not known") {
  CHECK(element_size("F64") == 8);
  CHECK(element_size("F32") == 4);
  CHECK(element_size("BF16") == 2);
  CHECK(element_size("F16") == 2);
  CHECK(element_size("F8_E5M2") == 1);
  CHECK(!element_size("bf16"));
  CHECK(!element_size("BF1"));
  CHECK(!element_size(""));
}

}  // namespace zeroth::element_size_test
