// The text that --inspect-samples prints.
#include "trainer/report/config_text.h"

#include <doctest/doctest.h>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::inspection_test {

TEST_CASE("the first samples are printed token by token, with how the data was understood") {
  const Workbench bench;
  std::string aside;
  const auto inspect_samples = [&](const std::string& more) {
    std::string text;
    zeroth::trainer::inspect_samples(
        make_plan(parse_line("--model " + (bench / "model").string() + " --data " +
                             (bench / "qa.jsonl").string() + " --micro-batch 1 " + more),
                  1),
        /*colored=*/false, [&](std::string_view part) { text += part; },
        [&](std::string_view part) { aside += part; });
    return text;
  };
  const std::string text = inspect_samples("--inspect-samples 2");
  CHECK(text.starts_with("qa.jsonl: 13 samples of at most 128 positions"));
  CHECK(has(text,
            "'question' is the prompt, 'answer' is trained, joined as in "
            "\"count to 0:\\n 0\""));
  CHECK(has(text, "qa.jsonl:1: "));
  CHECK(has(text, "qa.jsonl:2: "));
  CHECK_FALSE(has(text, "qa.jsonl:3: "));
  CHECK(has(text, "trained  \"<|endoftext|>\"\n"));
  CHECK(has(text, "-        \"\\n\"\n"));  // the separator
  CHECK(aside.empty());
  const std::string json = inspect_samples("--inspect-samples 2 --inspect-format json");
  CHECK(json.starts_with("{\"text\":"));
  CHECK(std::ranges::count(json, '\n') == 2);
  CHECK(aside.starts_with("qa.jsonl: 13 samples of at most 128 positions"));
  // More than there are, and those that are evaluated.
  CHECK(has(inspect_samples("--inspect-samples 99"), "qa.jsonl:13: "));
  CHECK(has(inspect_samples("--inspect-samples 1 --eval-only"), "qa.jsonl:1: "));
}

TEST_CASE("the positions of a packed row begin anew with each of its samples") {
  const Workbench bench;
  std::string text;
  zeroth::trainer::inspect_samples(
      make_plan(parse_line("--model " + (bench / "model").string() + " --data " +
                           (bench / "qa.jsonl").string() +
                           " --micro-batch 1 --packing --inspect-samples 1"),
                1),
      /*colored=*/false, [&](std::string_view part) { text += part; }, [](std::string_view) {});
  const size_t seam = text.find("\n-------- sample 2 of the row\n       0 ");
  REQUIRE(seam != std::string::npos);
  CHECK(text.substr(0, seam).ends_with("trained  \"<|endoftext|>\""));
  CHECK(text.substr(text.find("       0 ", seam)).find("-        \"") < 40);
  CHECK(has(text, "rows\n"));
}

TEST_CASE("inspecting trains and writes nothing, on any number of ranks") {
  const Workbench bench;
  const auto result = bench.zeroth(2,
                                   "--model model --data train.bin --seq-len 16 --micro-batch 1 "
                                   "--output out --inspect-samples 1");
  REQUIRE_MESSAGE(result.code == 0, result.err);
  CHECK(has(result.out, "train.bin sample 0: 17 tokens, 16 trained\n"));
  CHECK_FALSE(has(result.out, "[0]"));
  CHECK_FALSE(std::filesystem::exists(bench / "out"));
  const auto none = bench.finetune("--model model --data train.bin --inspect-samples 0");
  CHECK(none.code == 0);
  CHECK(has(none.out, "positions"));
  CHECK_FALSE(has(none.out, "train.bin sample 0"));
  CHECK(bench.finetune("--model model --data train.bin --inspect-samples -1").code == 2);
}

}  // namespace zeroth::trainer::inspection_test
