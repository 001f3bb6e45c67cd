// Rules of the flags about data.
#include <doctest/doctest.h>

#include "tests/trainer/flag_line.h"

namespace zeroth::trainer::data_rules_test {

TEST_CASE("flags about data have the values that they name") {
  const Flags flags = parse_line(
      "--model m --data a.jsonl b.jsonl:2 --on-long drop --on-bad-record skip --token-cache t "
      "--max-samples 7 --val-split 0.1");
  CHECK(flags.data == std::vector<std::string>{"a.jsonl", "b.jsonl:2"});
  CHECK(flags.on_long == data::OnLong::kDrop);
  CHECK(flags.on_bad_record == data::OnBadRecord::kSkip);
  CHECK(flags.token_cache.enabled);
  CHECK(flags.token_cache.directory == "t");
  CHECK(flags.max_train_samples == 7);
  CHECK(flags.val_split == 0.1);
  CHECK_FALSE(parse_line("--model m --data a.jsonl --token-cache none").token_cache.enabled);
  CHECK(parse_line("--model m --data a.jsonl --data b.jsonl").data.size() == 2);
}

TEST_CASE("values of flags about data that contradict each other are errors") {
  CHECK(has(usage_error_line("--model m --data d.jsonl --on-long shorten"), "--on-long shorten"));
  CHECK(has(usage_error_line("--model m --data d.jsonl --val-split 0"),
            "--val-split 0: must be above 0"));
  CHECK(has(usage_error_line("--model m --data d.jsonl --val-split 5 --max-eval-samples 2"),
            "--val-split N sets N samples aside"));
  CHECK(has(usage_error_line("--model m --data d.jsonl --val-split 5 --on-long split"),
            "parts of one record would be on both sides"));
  CHECK(has(usage_error_line("--model m --data d.jsonl --tokenize"),
            "--tokenize needs --output PREFIX"));
}

}  // namespace zeroth::trainer::data_rules_test
