#include "configs/schema/key_rows.h"
#include "tests/configs/support.h"

namespace zeroth::configs::keys_training_test {

TEST_CASE("training keys are honoured, idle or refused as the table says") {
  for (const ConfigKey& key : training_rows()) check_row(key);
}

TEST_CASE("gradient and data type keys are honoured, idle or refused as the table says") {
  for (const ConfigKey& key : gradient_rows()) check_row(key);
}

}  // namespace zeroth::configs::keys_training_test
