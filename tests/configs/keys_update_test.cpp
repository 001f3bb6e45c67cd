#include "configs/schema/key_rows.h"
#include "tests/configs/support.h"

namespace zeroth::configs::keys_update_test {

TEST_CASE("optimizer and scheduler keys are honoured, idle or refused as the table says") {
  for (const ConfigKey& key : update_rows()) check_row(key);
}

}  // namespace zeroth::configs::keys_update_test
