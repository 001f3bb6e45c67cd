#include "tests/configs/support.h"

namespace zeroth::configs::batch_test {
namespace {

// train_batch_size / micro / accumulation; 0 leaves a value out of the file.
std::string batch_text(int64_t batch, int64_t micro, int64_t steps) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (batch) json["train_batch_size"] = batch;
  if (micro) json["train_micro_batch_size_per_gpu"] = micro;
  if (steps) json["gradient_accumulation_steps"] = steps;
  return json.dump();
}

void check_batch(const BatchConfig& batch, int64_t total, int64_t micro, int64_t steps) {
  CHECK(batch.train_batch_size == total);
  CHECK(batch.micro_batch_size == micro);
  CHECK(batch.accumulation_steps == steps);
}

constexpr char kAuto[] = R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                             "gradient_accumulation_steps": "auto"})";

}  // namespace

TEST_CASE("any two batch values give the third") {
  for (const auto& [total, micro, steps] : {std::array{32, 16, 1}, std::array{32, 8, 2}}) {
    check_batch(config_of(batch_text(total, micro, steps)).batch, total, micro, steps);
    check_batch(config_of(batch_text(total, micro, 0)).batch, total, micro, steps);
    check_batch(config_of(batch_text(total, 0, steps)).batch, total, micro, steps);
    check_batch(config_of(batch_text(0, micro, steps)).batch, total, micro, steps);
  }
  check_batch(config_of(batch_text(32, 0, 0)).batch, 32, 16, 1);
  check_batch(config_of(batch_text(0, 4, 0)).batch, 8, 4, 1);
}

TEST_CASE("a batch that does not come out shows the equation and what to change") {
  CHECK(error_of(batch_text(33, 17, 0)) ==
        "test.json: train_batch_size 33 != micro 17 * accumulation 1 * ranks 2: set "
        "train_batch_size to 34; no micro * accumulation gives 33 on 2 ranks");
  CHECK(error_of(batch_text(33, 17, 2)).find("33 != micro 17 * accumulation 2 * ranks 2") !=
        std::string::npos);
  CHECK(error_of(batch_text(32, 18, 1)) ==
        "test.json: train_batch_size 32 != micro 18 * accumulation 1 * ranks 2: set "
        "train_batch_size to 36, or train_micro_batch_size_per_gpu to 16");
  CHECK(error_of(batch_text(32, 4, 2)) ==
        "test.json: train_batch_size 32 != micro 4 * accumulation 2 * ranks 2: set "
        "train_batch_size to 16, or train_micro_batch_size_per_gpu to 8, or "
        "gradient_accumulation_steps to 4");
  CHECK(error_of(batch_text(7, 0, 0)) ==
        "test.json: train_batch_size 7 != micro 3 * accumulation 1 * ranks 2: set "
        "train_batch_size to 8; no micro * accumulation gives 7 on 2 ranks");
}

TEST_CASE("where neither value alone fits, the error names the nearest pair, or that none exists") {
  CHECK(error_of(batch_text(33, 4, 4)) ==
        "test.json: train_batch_size 33 != micro 4 * accumulation 4 * ranks 2: set "
        "train_batch_size to 32; no micro * accumulation gives 33 on 2 ranks");
  CHECK(error_of(batch_text(36, 4, 4)) ==
        "test.json: train_batch_size 36 != micro 4 * accumulation 4 * ranks 2: set "
        "train_batch_size to 32, or train_micro_batch_size_per_gpu to 3 and "
        "gradient_accumulation_steps to 6");
  CHECK(error_of(batch_text(32, 5, 0)) ==
        "test.json: train_batch_size 32 != micro 5 * accumulation 3 * ranks 2: set "
        "train_batch_size to 30, or train_micro_batch_size_per_gpu to 4");
  CHECK(error_of(batch_text(36, 3, 6)) == "");
  CHECK(error_of(batch_text(32, 4, 0)) == "");
}

TEST_CASE("what the error proposes is accepted") {
  for (int64_t total = 1; total < 50; ++total) {
    for (const auto& [micro, steps] : {std::array{0, 0}, {3, 0}, {0, 3}, {2, 2}}) {
      const std::string error = error_of(batch_text(total, micro, steps));
      if (error.empty()) continue;
      const size_t at = error.find("set train_batch_size to ");
      REQUIRE(at != std::string::npos);
      CAPTURE(error);
      CHECK(error_of(batch_text(std::stoll(error.substr(at + 24)), micro, steps)) == "");
    }
  }
}

TEST_CASE("accumulation alone does not give the batch") {
  CHECK(error_of(batch_text(0, 0, 4)).find("train_batch_size = micro * accumulation 4 * ranks 2") !=
        std::string::npos);
  FlagValues flags;
  flags.micro_batch = 2;
  check_batch(config_of(batch_text(0, 0, 4), flags).batch, 16, 2, 4);
}

TEST_CASE("flags fill what is absent or auto") {
  FlagValues flags;
  flags.micro_batch = 4;
  flags.accumulation = 3;
  check_batch(config_of("{}", flags).batch, 24, 4, 3);
  check_batch(config_of(kAuto, flags).batch, 24, 4, 3);
  FlagValues global;
  global.global_batch = 24;
  check_batch(config_of(kAuto, global).batch, 24, 12, 1);
  global.micro_batch = 3;
  check_batch(config_of(kAuto, global).batch, 24, 3, 4);
  FlagValues micro;
  micro.micro_batch = 4;
  check_batch(config_of(batch_text(32, 0, 0), micro).batch, 32, 4, 4);
}

TEST_CASE("the remedy of a flag's value is the flag") {
  FlagValues flags;
  flags.global_batch = 9;
  flags.micro_batch = 2;
  CHECK(error_of("{}", flags) ==
        "test.json: --global-batch 9 != micro 2 * accumulation 2 * ranks 2: set --global-batch "
        "to 8; no micro * accumulation gives 9 on 2 ranks");
}

TEST_CASE("without any batch value it is eight samples per rank, and said") {
  for (const char* text : {"{}", kAuto}) {
    const Resolved resolved = resolve_text(text);
    check_batch(resolved.config.batch, 16, 8, 1);
    CHECK(has_note(resolved, "no batch size given: train_micro_batch_size_per_gpu 8"));
  }
  FlagValues flags;
  flags.accumulation = 2;
  check_batch(config_of("{}", flags).batch, 32, 8, 2);
}

TEST_CASE("a flag beside another value in the file is an error that lists every pair") {
  FlagValues flags;
  flags.micro_batch = 4;
  flags.accumulation = 2;
  CHECK(error_of(batch_text(0, 8, 1), flags) ==
        "test.json: 2 errors\n"
        "  train_micro_batch_size_per_gpu: 8 in the file, but --micro-batch 4; make them equal or "
        "write \"auto\" in the file\n"
        "  gradient_accumulation_steps: 1 in the file, but --accumulation 2; make them equal or "
        "write \"auto\" in the file");
  CHECK(error_of(batch_text(0, 4, 2), flags) == "");
}

TEST_CASE("a batch key that is bad is not also called missing") {
  CHECK(error_of(R"({"train_batch_size": "32"})") ==
        "test.json: train_batch_size: expected an integer, found the string \"32\"");
  CHECK(error_of(R"({"train_batch_sise": 32, "gradient_accumulation_steps": 1})") ==
        "test.json: train_batch_sise: unknown key; did you mean train_batch_size?");
  CHECK(error_of(batch_text(-4, 0, 0)).find("train_batch_size: expected an integer in 1..") !=
        std::string::npos);
}

TEST_CASE("a run that goes on keeps its global batch on any number of ranks") {
  const auto batch = [](const std::string& text, int64_t ranks, bool may_change = false) {
    FlagValues flags;
    flags.previous_batch = 24;
    flags.allow_batch_change = may_change;
    return resolve_batch(parse_text(text, "test.json"), flags, ranks);
  };
  check_batch(batch(batch_text(0, 0, 0), 2), 24, 12, 1);
  check_batch(batch(batch_text(0, 3, 0), 2), 24, 3, 4);
  check_batch(batch(batch_text(24, 3, 2), 2), 24, 3, 4);  // it was on four ranks
  check_batch(batch(batch_text(24, 0, 0), 5), 24, 5, 1);  // 25 rows, of which one does not count
  check_batch(batch(batch_text(24, 4, 2), 5), 24, 3, 2);  // 30 rows
  check_batch(batch(batch_text(0, 3, 2), 2, true), 12, 3, 2);
  check_batch(batch(batch_text(0, 0, 0), 2, true), 24, 12, 1);
}

TEST_CASE(
    "a later round keeps the batch whatever is given, in no larger micro-batches than before") {
  FlagValues flags;
  flags.previous_batch = 24;
  flags.previous_micro_batch = 6;
  const auto batch = [&](const std::string& text, int64_t ranks) {
    return resolve_batch(parse_text(text, "test.json"), flags, ranks);
  };
  check_batch(batch(batch_text(0, 0, 0), 2), 24, 6, 2);
  check_batch(batch(batch_text(0, 6, 2), 1), 24, 6, 4);
  check_batch(batch(batch_text(0, 6, 2), 8), 24, 3, 1);
  check_batch(batch(batch_text(32, 0, 0), 2), 24, 6, 2);
  check_batch(batch(batch_text(48, 12, 2), 2), 24, 6, 2);
  check_batch(batch(batch_text(24, 0, 0), 1), 24, 6, 4);
  flags.previous_rank_batch = 12;
  const RunFacts facts{.world_size = 8, .hidden_size = 64, .total_steps = {}};
  CHECK(resolve(parse_text(batch_text(0, 6, 2), "test.json"), flags, facts).rank_batch == 12);
}

TEST_CASE("a run that goes on is refused another batch, unless only its ranks have changed") {
  FlagValues flags;
  flags.previous_batch = 24;
  flags.previous_rank_batch = 12;  // on two ranks
  const auto resolved = [&](int64_t micro, int64_t steps, int64_t ranks) {
    FlagValues now = flags;
    if (micro > 0) now.micro_batch = micro;
    if (steps > 0) now.accumulation = steps;
    return resolve(parse_text("{}", "test.json"), now, {.world_size = ranks, .hidden_size = 64});
  };
  const auto refusal = [&](int64_t micro, int64_t steps, int64_t ranks) {
    try {
      resolved(micro, steps, ranks);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal(2, 0, 2) ==
        "test.json: --micro-batch 2 on 2 ranks give a global batch of 4, but the checkpoint's run "
        "has "
        "24: --allow-batch-change resumes with 4, --global-batch 24 keeps it");
  CHECK(refusal(6, 1, 2).find("--micro-batch 6 and --accumulation 1 on 2 ranks") !=
        std::string::npos);
  CHECK(refusal(0, 2, 2).find("--accumulation 2 on 2 ranks give a global batch of 32") !=
        std::string::npos);
  // The same on a rank, or the same in all.
  check_batch(resolved(4, 3, 2).config.batch, 24, 4, 3);
  check_batch(resolved(3, 4, 2).config.batch, 24, 3, 4);
  check_batch(resolved(4, 3, 1).config.batch, 24, 4, 6);
  check_batch(resolved(12, 0, 4).config.batch, 24, 6, 1);
  check_batch(resolved(6, 0, 4).config.batch, 24, 6, 1);
  check_batch(resolved(0, 0, 3).config.batch, 24, 8, 1);
  CHECK(resolved(12, 0, 4).rank_batch == 12);  // what the line says, for the next time
  CHECK(resolved(0, 0, 3).rank_batch == 12);
  CHECK(resolved(6, 0, 4).rank_batch == 6);
  CHECK(resolve(parse_text(batch_text(24, 0, 0), "test.json"), flags,
                {.world_size = 2, .hidden_size = 64, .total_steps = {}})
            .rank_batch == 0);
  // A run that named its global batch, on a line that does so no more.
  flags.previous_rank_batch = 0;
  check_batch(resolved(6, 2, 2).config.batch, 24, 6, 2);
  CHECK_FALSE(refusal(3, 2, 2).empty());
  flags.allow_batch_change = true;
  check_batch(resolved(2, 0, 2).config.batch, 4, 2, 1);
  CHECK(resolved(2, 0, 2).rank_batch == 2);
}

}  // namespace zeroth::configs::batch_test
