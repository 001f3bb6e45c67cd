#include "trainer/flags/hf_flags.h"

#include <doctest/doctest.h>

namespace zeroth::trainer::spellings_test {

TEST_CASE("a message names the flags that were typed, as whole words") {
  Spellings spellings;
  spellings.add("--lr", "--learning_rate");
  spellings.add("--save-every", "--save_steps");
  spellings.add("--lr", "--lr");  // the first one stays
  CHECK(spellings.as_typed("--lr 1: must be above 0") == "--learning_rate 1: must be above 0");
  CHECK(spellings.as_typed("--lr_scheduler_type, x--lr, --lr=1 (--save-every)") ==
        "--lr_scheduler_type, x--lr, --learning_rate=1 (--save_steps)");
  CHECK(spellings.as_typed("--steps -- --") == "--steps -- --");
  CHECK(spellings.lookup("--save-every") == "--save_steps");
  CHECK(spellings.lookup("--steps") == "--steps");
  CHECK(spellings.is_typed_as("--save-every", "save_steps"));
  CHECK_FALSE(spellings.is_typed_as("--steps", "max_steps"));
}

}  // namespace zeroth::trainer::spellings_test
