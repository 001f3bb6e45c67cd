#include "configs/resolve.h"

#include <filesystem>

#include "tests/configs/support.h"

namespace zeroth::configs::resolve_test {
namespace {

const std::string kFixtures = std::string(ZEROTH_SOURCE_DIR) + "/tests/configs/fixtures/";

std::string load_error(const std::string& path) {
  try {
    resolve(load(path), {}, kFacts);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("every preset loads, on one rank and on several, with the flags' defaults") {
  int presets = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ZEROTH_SOURCE_DIR) + "/configs/presets")) {
    CAPTURE(entry.path().string());
    ++presets;
    const std::string stem = entry.path().stem().string();
    const Document document = load(entry.path().string());
    for (const int64_t ranks : {1, 4}) {
      RunFacts facts = kFacts;
      facts.world_size = ranks;
      const Config config = resolve(document, {}, facts).config;
      CHECK(config.zero.stage == stem[4] - '0');
      CHECK((config.zero.offload_optimizer.device != OffloadDevice::kNone) ==
            (stem.find("offload") != std::string::npos));
      CHECK((config.zero.offload_param.device == OffloadDevice::kNvme) ==
            (stem.find("nvme") != std::string::npos));
      CHECK(config.batch.train_batch_size == 8 * ranks);
      CHECK((config.precision == Precision::kBf16) == (stem.find("bf16") != std::string::npos));
      CHECK((config.precision == Precision::kFp16) == (stem.find("fp16") != std::string::npos));
    }
  }
  CHECK(presets >= 9);
}

TEST_CASE("the presets differ in stage, offload and precision only") {
  const std::string directory = std::string(ZEROTH_SOURCE_DIR) + "/configs/presets/";
  const auto neutral = [&](const char* name) {
    Config config = resolve(load(directory + name), {}, kFacts).config;
    config.precision = Precision::kFp32;
    config.zero = {};
    return to_json(config);
  };
  for (const char* name : {"zero1.json", "zero2.json", "zero3.json", "zero3_bf16.json",
                           "zero2_offload.json", "zero3_offload.json", "zero3_offload_nvme.json"}) {
    CHECK(neutral(name) == neutral("zero0.json"));
  }
}

TEST_CASE("a file with many faults reports them all, each with its path") {
  const std::string error = load_error(kFixtures + "many_faults.json");
  CHECK(error.starts_with(kFixtures + "many_faults.json: 8 errors\n  "));
  for (const char* part : {"gradient_clipp1ng: unknown key; did you mean gradient_clipping?",
                           "zero_optimization.stage: expected an integer in 0..3, found 4",
                           "zero_optimization.offload_optimizer.device: \"nvme\" needs",
                           "optimizer.params.lr: expected a number, found the string \"fast\"",
                           "optimizer.params.max_grad_norm: expected a number >= 0, found -1",
                           "fp16.enabled: duplicate key in the same object",
                           "train_batch_size 33 != micro 17 * accumulation 1 * ranks 2",
                           "fp16.enabled and bf16.enabled are both true"}) {
    CAPTURE(part);
    CHECK(error.find(part) != std::string::npos);
  }
}

TEST_CASE("a file with comments and integral floats loads") {
  const Config config = resolve(load(kFixtures + "commented.json"), {}, kFacts).config;
  CHECK(config.zero.stage == 2);
  CHECK(config.zero.reduce_bucket_elements == 500'000'000);
  CHECK(config.batch.train_batch_size == 32);
}

TEST_CASE("a syntax error is reported with file, line and column") {
  CHECK(load_error(kFixtures + "syntax.json")
            .starts_with(kFixtures + "syntax.json:4:16: zero_optimization.stage: not JSON: "));
}

TEST_CASE("a path that is no file is named, and base64 is read") {
  CHECK(load_error("/no/such/ds_config.json").find("/no/such/ds_config.json: no such") !=
        std::string::npos);
  CHECK(load_error("nosuchfile").find("nosuchfile: no such") != std::string::npos);
  CHECK(load_error(kFixtures).find("is a folder") != std::string::npos);
  // {"train_batch_size": 4}
  const Document document = load("eyJ0cmFpbl9iYXRjaF9zaXplIjogNH0=");
  CHECK(resolve(document, {}, kFacts).config.batch.train_batch_size == 4);
}

TEST_CASE("the batch can be resolved before model and steps are known") {
  const Document document = parse_text(
      R"({"train_batch_size": 12, "zero_optimization": {"reduce_bucket_size": "auto"},
          "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}})",
      "x");
  CHECK(resolve_batch(document, {}, 3).micro_batch_size == 4);
  CHECK_THROWS_AS(resolve_batch(document, {}, 5), Error);
  CHECK_THROWS_AS(resolve_batch(document, {}, 0), Error);
  CHECK_THROWS_AS(resolve(document, {}, {.world_size = 3, .hidden_size = 0, .total_steps = {}}),
                  Error);
}

TEST_CASE("the faults of the file are already thrown with the batch") {
  CHECK_THROWS_AS(resolve_batch(parse_text(R"({"fp17": 1})", "x"), {}, 1), Error);
}

TEST_CASE("without a file, complaints are about the command line") {
  FlagValues flags;
  flags.eps = -1;
  CHECK_THROWS_WITH_AS(resolve(Document(), flags, kFacts),
                       "command line: --eps: expected >= 0, found -1", Error);
}

TEST_CASE("a configuration written for Hugging Face's Trainer loads") {
  FlagValues flags;
  flags.warmup_steps = 10;
  flags.precision = Precision::kBf16;
  const Document document = load(kFixtures + "hugging_face_zero3.json");
  const Resolved resolved = resolve(document, flags, kFacts);
  CHECK(resolved.config.zero.stage == 3);
  CHECK(resolved.config.precision == Precision::kBf16);
  CHECK(resolved.config.optimizer.lr == 5e-5);
  CHECK(resolved.config.scheduler.total_num_steps == 100);
  CHECK(resolved.config.zero.gather_16bit_weights_on_model_save);
}

TEST_CASE("clipping is on at 1.0, and off only when asked") {
  CHECK(resolve(Document(), {}, kFacts).config.gradient_clipping == 1.0);
  CHECK(config_of(R"({"gradient_clipping": 0})").gradient_clipping == 0);
  CHECK(config_of(R"({"gradient_clipping": "auto"})").gradient_clipping == 1.0);
  FlagValues flags;
  flags.max_grad_norm = 0.5;
  CHECK(config_of(R"({"gradient_clipping": "auto"})", flags).gradient_clipping == 0.5);
  CHECK(error_of(R"({"gradient_clipping": 1.0})", flags).find("--max-grad-norm 0.5") !=
        std::string::npos);
}

// tools/make_clipping_fixtures.py has measured them.
TEST_CASE("gradients are clipped as DeepSpeed and Hugging Face's Trainer clip them") {
  int rows = 0;
  const auto measured = nlohmann::json::parse(read_source("tests/configs/fixtures/clipping.json"));
  for (const auto& row : measured["rows"]) {
    CAPTURE(row.dump());
    ++rows;
    FlagValues flags;
    flags.for_trainer = row["by"] == "trainer";
    if (row.contains("max_grad_norm")) flags.max_grad_norm = row["max_grad_norm"].get<double>();
    nlohmann::json file = nlohmann::json::object();
    if (row.contains("gradient_clipping")) file["gradient_clipping"] = row["gradient_clipping"];
    const Document document = row["file"] ? parse_text(file.dump(), "test.json") : Document();
    if (row["clipped"] == "refused" && flags.max_grad_norm) {
      CHECK_THROWS_AS(resolve(document, flags, kFacts), Error);
      continue;
    }
    const Resolved resolved = resolve(document, flags, kFacts);
    const double norm = resolved.config.gradient_clipping;
    const bool unsaid = row["clipped"] == "refused";  // there by the default of --max_grad_norm
    constexpr double kWhole = 200;
    CHECK((norm > 0 ? norm : kWhole) == (unsaid ? row["gradient_clipping"] : row["clipped"]));
    if (row["file"] && file.empty() && flags.max_grad_norm) {
      CHECK(has_warning(resolved, fmt::format("--max-grad-norm {} has no effect with a file "
                                              "without gradient_clipping, as in Hugging Face's "
                                              "Trainer: gradients are clipped at 1, DeepSpeed's "
                                              "default; write \"gradient_clipping\": \"auto\" into "
                                              "the file",
                                              *flags.max_grad_norm)));
    }
  }
  CHECK(rows == 19);
}

TEST_CASE("a norm has an origin, and a flag of ours fills a key that is absent") {
  const auto origin = [](const Resolved& resolved) {
    return resolved.origins.at("gradient_clipping");
  };
  FlagValues trainer, ours;
  trainer.for_trainer = true;
  ours.max_grad_norm = 0.5;
  CHECK(origin(resolve_text("{}")) == "DeepSpeed's default");
  CHECK(origin(resolve_text("{}", trainer)) == "DeepSpeed's default");
  CHECK(origin(resolve(Document(), trainer, kFacts)) == "Trainer's default");
  CHECK(origin(resolve(Document(), {}, kFacts)) == "default");
  CHECK(origin(resolve_text("{}", ours)) == "--max-grad-norm");
  CHECK(config_of("{}", ours).gradient_clipping == 0.5);
  CHECK(origin(resolve_text(R"({"gradient_clipping": 2})")) == "file");
}

TEST_CASE("a max_grad_norm of the optimizer is taken as clipping, with a warning") {
  const auto file = [](const std::string& clipping, const std::string& norm,
                       const std::string& type = "AdamW") {
    return fmt::format(R"({{{}"optimizer": {{"type": "{}", "params": {{"max_grad_norm": {}}}}}}})",
                       clipping.empty() ? "" : "\"gradient_clipping\": " + clipping + ", ", type,
                       norm);
  };
  FlagValues flag;
  flag.max_grad_norm = 0.5;
  const std::string path = "optimizer.params.max_grad_norm";
  for (const char* type : {"AdamW", "SGD", "Lion", "Adagrad", "Lamb", "AdamW8bit"}) {
    const Resolved alone = resolve_text(file("", "0.5", type));
    CHECK(alone.config.gradient_clipping == 0.5);
    CHECK(alone.origins.at("gradient_clipping") == path);
    CHECK(has_warning(alone, path + " 0.5 is used as gradient_clipping, but DeepSpeed refuses it "
                                    "there: write \"gradient_clipping\": 0.5 at the top level"));
  }
  CHECK(config_of(file("", "0")).gradient_clipping == 0);
  CHECK(config_of(file("\"auto\"", "0.5")).gradient_clipping == 0.5);
  CHECK(config_of(file("\"auto\"", "0.5"), flag).gradient_clipping == 0.5);
  CHECK(config_of(file("2", "null")).gradient_clipping == 2);
  const Resolved equal = resolve_text(file("2", "2.0"));
  CHECK(equal.config.gradient_clipping == 2);
  CHECK(equal.origins.at("gradient_clipping") == "file");
  CHECK(has_warning(equal, path + " 2.0 repeats gradient_clipping"));
  CHECK(error_of(file("1.0", "0.5")) ==
        "test.json: " + path +
            ": 0.5 in the file, but gradient_clipping 1.0; keep only gradient_clipping");
  for (const char* clipping : {"", "\"auto\""}) {
    CHECK(error_of(file(clipping, "2"), flag)
              .starts_with("test.json: " + path + ": 2.0 in the file, but --max-grad-norm 0.5; "));
  }
  CHECK(error_of(file("", "-1")).find(path + ": expected a number >= 0") != std::string::npos);
  CHECK(error_of(file("", "\"fast\"")).find(path + ": expected a number") != std::string::npos);
}

TEST_CASE("seed and printing reach the configuration") {
  FlagValues flags;
  CHECK(config_of("{}").seed == 42);
  flags.seed = 7;
  const Config config =
      config_of(R"({"steps_per_print": 10, "wall_clock_breakdown": true})", flags);
  CHECK(config.seed == 7);
  CHECK(config.steps_per_print == 10);
  CHECK(config.wall_clock_breakdown);
}

}  // namespace zeroth::configs::resolve_test
