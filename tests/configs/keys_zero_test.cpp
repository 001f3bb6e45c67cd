#include "configs/schema/key_rows.h"
#include "tests/configs/support.h"

namespace zeroth::configs {

TEST_CASE("zero_optimization keys are honoured, idle or refused as the table says") {
  for (const Key& key : zero_rows()) check_row(key);
}

TEST_CASE("what would change the training is refused by its key") {
  CHECK(complaints_of(nested("zero_optimization.zenflow", R"({"topk_ratio": 0.1})"))
            .starts_with("zero_optimization.zenflow: refused: not supported yet: it delays"));
  CHECK(complaints_of(nested("zero_optimization.zero_quantized_weights", "true"))
            .starts_with("zero_optimization.zero_quantized_weights: true is refused"));
}

}  // namespace zeroth::configs
