#include "configs/schema/key_rows.h"
#include "tests/configs/support.h"

namespace zeroth::configs::keys_report_test {

TEST_CASE("report keys are honoured, idle or refused as the table says") {
  for (const ConfigKey& key : report_rows()) check_row(key);
}

}  // namespace zeroth::configs::keys_report_test
