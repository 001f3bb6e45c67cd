#include "trainer/step_directory.h"

#include <doctest/doctest.h>

namespace zeroth::trainer {

TEST_CASE("folders on the way are told by their name") {
  CHECK(is_step_directory("step-10"));
  CHECK(is_step_directory("checkpoint-500"));
  for (const char* other : {"step-", "checkpoint-", "step-1a", "my-step-10", "checkpoint", "10"}) {
    CAPTURE(other);
    CHECK_FALSE(is_step_directory(other));
  }
}

}  // namespace zeroth::trainer
