#include "trainer/run_plan.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.h"
#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"

namespace zeroth::trainer::hf_requests_test {
namespace {

// Empty: a run with these flags is planned.
std::string refused(const Workbench& bench, const std::string& line, int64_t world_size = 1) {
  try {
    const std::string directory = bench / "";
    (void)make_plan(parse_line(fmt::format("--model {0}model --seq-len 16 --micro-batch 2 {1}",
                                           directory, line)),
                    world_size);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an evaluation in bf16 may be asked for where the run computes in bf16") {
  const Workbench bench;
  const std::string data = fmt::format("--data {} ", (bench / "train.bin").string());
  bench.write("bf16.json", R"({"bf16": {"enabled": true}})");
  const std::string file = fmt::format("--deepspeed {} ", (bench / "bf16.json").string());
  CHECK(refused(bench, data + "--bf16_full_eval True --bf16") == "");
  CHECK(refused(bench, data + "--bf16_full_eval True " + file) == "");
  CHECK(refused(bench, data + "--fp16_full_eval --fp16 True") == "");
  CHECK(refused(bench, data + "--bf16_full_eval True") ==
        "--bf16_full_eval True: not supported: an evaluation has the precision of the training, "
        "which is fp32; --bf16 sets both");
  CHECK(refused(bench, data + "--fp16_full_eval True " + file) ==
        "--fp16_full_eval True: not supported: an evaluation has the precision of the training, "
        "which is bf16; --fp16 sets both");
  CHECK(refused(bench, data + "--bf16_full_eval False") == "");
}

TEST_CASE("a flag is accepted where it asks for what the run does anyway, else refused") {
  const Workbench bench;
  const std::string data = fmt::format("--data {} ", (bench / "train.bin").string());
  const std::string eval = fmt::format("--eval-data {} ", (bench / "train.bin").string());
  bench.write("sgd.json", R"({"optimizer": {"type": "SGD", "params": {"lr": 0.1}}})");
  const std::string sgd = fmt::format("--deepspeed {} ", (bench / "sgd.json").string());
  const std::string model = bench / "model/", other = bench / "";
  struct Case {
    std::string accepted, refused, why;
    int64_t ranks = 1;
  };
  for (const Case& each :
       {Case{"--data_seed 42", "--data_seed 7", "--seed also seeds the data, and is 42"},
        Case{"--data_seed 7 --seed 7", "--data_seed 0", "and is 42"},
        Case{"--tokenizer_name " + model, "--tokenizer_name " + other, "are read from --model, "},
        Case{"--config_name " + model, "--config_name gpt2", "are read from --model, "},
        Case{"--validation_split_percentage 10 " + eval, "--validation_split_percentage 10",
             "--data is not split: use a separate file"},
        Case{"--optim sgd " + sgd, "--optim paged_adamw " + sgd, "; here it is SGD"},
        Case{"--optim adamw_torch " + sgd, "--optim lion_32bit " + sgd, "; here it is SGD"},
        Case{"--optim adamw_bnb_8bit", "--optim adamw_bnb_8bit " + sgd, "; here it is SGD"},
        Case{"--optim lion_32bit", "--optim lion_8bit", "AdamW is the default"},
        Case{"--average_tokens_across_devices False --loss-mean micro-batch",
             "--average_tokens_across_devices False", "of which there are 2", 2},
        Case{"--train_sampling_strategy sequential --no-shuffle",
             "--train_sampling_strategy sequential", "; here they are shuffled"},
        Case{"--train_sampling_strategy random", "--train_sampling_strategy random --no-shuffle",
             "; here they are not shuffled"}}) {
    CAPTURE(each.refused);
    CHECK(refused(bench, data + each.accepted, each.ranks) == "");
    const std::string said = refused(bench, data + each.refused, each.ranks);
    CHECK_MESSAGE(has(said, each.why), said);
    CHECK(has(said, ": not supported: "));
  }
  CHECK(refused(bench, data + "--average_tokens_across_devices False") == "");
  CHECK(refused(bench, data + "--keep_linebreaks False") == "");
  bench.write("text.txt", "some words, and then some more of them, so that there are enough");
  CHECK(has(refused(bench, fmt::format("--data {} --keep_linebreaks False",
                                       (bench / "text.txt").string())),
            "a text is used as it is in the file"));
  const std::string both = refused(bench, data + "--data_seed 7 --bf16_full_eval");
  CHECK(has(both, "--data_seed 7"));
  CHECK(has(both, "\n  --bf16_full_eval True"));
}

TEST_CASE("every flag that may be fulfilled is compared") {
  const Workbench bench;
  for (const HfFlag& flag : hf_flags()) {
    if (flag.kind != HfFlag::Kind::kRequest) continue;
    CAPTURE(flag.name);
    const std::string value(flag.target.substr(0, flag.target.find(',')));
    const std::string line = fmt::format("--data {} --{}={} ", (bench / "train.bin").string(),
                                         flag.name, value.empty() ? "7" : value);
    CHECK_NOTHROW((void)refused(bench, line));  // an InternalError is none of ours
    CHECK(has(usage_error_line(fmt::format("--model m --data d.bin --{}=nonsense", flag.name)),
              "not supported") == !flag.target.empty());
  }
}

}  // namespace zeroth::trainer::hf_requests_test
