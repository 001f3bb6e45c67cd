#include "launcher/commands/commands.h"

#include <doctest/doctest.h>

#include <fstream>

#include "base/error.h"
#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::check_config_test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The line of a key, its columns one blank apart.
std::string line_of(const std::string& text, const std::string& key) {
  for (const std::string& line : lines_of(text)) {
    if (!line.starts_with("  " + key + " ")) continue;
    std::string joined;
    for (const char c : line) {
      if (c != ' ' || (!joined.empty() && joined.back() != ' ')) joined += c;
    }
    return joined;
  }
  return "";
}

std::string write(const TempFolder& directory, const std::string& text) {
  const std::string file = directory.path() / "ds_config.json";
  std::ofstream(file) << text;
  return file;
}

}  // namespace

TEST_CASE("check-config tells the state and value of every key and starts nothing") {
  const TempFolder directory;
  const std::string file = write(directory, R"({"train_batch_size": 8, // a comment
      "zero_optimization": {"stage": 2, "round_robin_gradients": true}, "bfloat16": {"enabled": true}})");
  const auto result = run_zeroth({"check-config", file});
  CHECK(result.status == 0);
  CHECK(result.err == "");
  CHECK(line_of(result.out, "zero_optimization.stage") ==
        "zero_optimization.stage honoured 2 file");
  CHECK(line_of(result.out, "zero_optimization.round_robin_gradients") ==
        "zero_optimization.round_robin_gradients no effect true shards are even, and each rank "
        "moves its own");
  CHECK(line_of(result.out, "gradient_clipping") ==
        "gradient_clipping honoured 1.0 DeepSpeed's default");
  CHECK(contains(result.out, "bfloat16 is the old name of bf16"));
  CHECK(result.out.ends_with("The file is accepted.\n"));
}

TEST_CASE("a file that a run would refuse ends check-config with 2, and every reason") {
  const TempFolder directory;
  const std::string file = write(directory, R"({"gradient_clipp1ng": 1, "sparse_gradients": true,
      "zero_optimization": {"stage": 4}})");
  const auto result = run_zeroth({"check-config", file});
  CHECK(result.status == 2);
  CHECK(line_of(result.out, "gradient_clipp1ng") == "gradient_clipp1ng unknown 1");
  CHECK(contains(result.out, "gradient_clipp1ng: unknown key; did you mean gradient_clipping?"));
  CHECK(contains(result.out, "sparse_gradients: true is refused"));
  CHECK(contains(result.out, "zero_optimization.stage: expected an integer in 0..3, found 4"));
  CHECK(result.out.ends_with("The file is refused: 3 errors.\n"));
}

TEST_CASE("check-config tells what is offloaded, what that leaves idle, and what cannot be") {
  const TempFolder directory;
  const auto good =
      run_zeroth({"check-config", std::string(ZEROTH_SOURCE_DIR) +
                                      "/tests/configs/fixtures/deepspeed_zero3_offload.json"});
  CHECK(good.status == 0);
  CHECK(line_of(good.out, "zero_optimization.offload_param.device") ==
        "zero_optimization.offload_param.device honoured \"cpu\" file");
  CHECK(line_of(good.out, "zero_optimization.offload_optimizer.pipeline_read") ==
        "zero_optimization.offload_optimizer.pipeline_read honoured true default");
  CHECK(contains(good.out, "aio has no effect: neither "));
  CHECK(good.out.ends_with("The file is accepted.\n"));
  const auto bad =
      run_zeroth({"check-config", write(directory, R"({"zero_optimization": {"stage": 2,
      "offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "cpu"}}})")});
  CHECK(bad.status == 2);
  CHECK(line_of(bad.out, "zero_optimization.offload_optimizer.device") ==
        "zero_optimization.offload_optimizer.device refused \"nvme\" file");
  CHECK(contains(bad.out,
                 "zero_optimization.offload_param.device \"cpu\" has no effect, as in DeepSpeed: "
                 "it needs zero_optimization.stage 3, found 2"));
  CHECK(bad.out.ends_with("The file is refused: 1 error.\n"));
}

TEST_CASE("check-config takes what a run would need to accept a file, or to refuse it") {
  const TempFolder directory;
  const std::string file = write(directory, R"({"log": 1, "optimizer": {"type": "OneBitLamb"}})");
  const CommandResult refused = check_config({file});
  CHECK(refused.status == 2);
  CHECK(contains(refused.text, "--accept-uncompressed runs it uncompressed"));
  const CommandResult accepted = check_config({file, "--accept-uncompressed"});
  CHECK(accepted.status == 0);
  CHECK(contains(accepted.text, "log: ignored, as by DeepSpeed: unknown key"));
  CHECK(check_config({file, "--accept-uncompressed", "--strict"}).status == 2);
}

TEST_CASE("check-config reads base64, and holds the batch against --ranks") {
  const std::string base64 = "eyJ0cmFpbl9iYXRjaF9zaXplIjogNH0=";  // {"train_batch_size": 4}
  CHECK(check_config({base64}).status == 0);
  CHECK(check_config({base64, "--ranks", "2"}).status == 0);
  const CommandResult three = check_config({base64, "--ranks", "3"});
  CHECK(three.status == 2);
  CHECK(contains(three.text, "train_batch_size 4 != micro 1 * accumulation 1 * ranks 3"));
}

TEST_CASE("check-config takes as many ranks as a file splits layers over, and says so") {
  const TempFolder directory;
  const std::string file = write(directory, R"({"tensor_parallel": {"autotp_size": 2}})");
  const CommandResult two = check_config({file});
  CHECK(two.status == 0);
  CHECK(contains(two.text, "checked for 2 ranks, data 1 x tensor 2"));
  CHECK(contains(check_config({file, "--ranks", "6"}).text, "for 6 ranks, data 3 x tensor 2"));
  const CommandResult three = check_config({file, "--ranks", "3"});
  CHECK(three.status == 2);
  CHECK(contains(three.text, "tensor_parallel.autotp_size: 2 does not divide the number of ranks"));
}

TEST_CASE("check-config shows control bytes of keys and values") {
  const TempFolder directory;
  const std::string text = "{\"\\u001b[2J\": 1, \"optimizer\": {\"type\": \"\\u009b\\n\"}}";
  const auto result = run_zeroth({"check-config", write(directory, text)});
  CHECK(result.status == 2);
  CHECK(contains(result.out, "\\u001b[2J"));
  CHECK(contains(result.out, "\\u009b"));
  CHECK(result.out.find_first_of("\x1b\x9b") == std::string::npos);
  const auto unread = run_zeroth({"check-config", write(directory, "{\"\x1b[2J\": 1}")});
  CHECK(contains(unread.err, "ds_config.json:1:3: not JSON: a control byte"));
  CHECK(unread.err.find('\x1b') == std::string::npos);
}

TEST_CASE("what check-config cannot understand or read is a usage error") {
  CHECK_THROWS_WITH_AS(check_config({}),
                       "check-config: FILE is missing (zeroth check-config --help)", UsageError);
  CHECK_THROWS_WITH_AS(check_config({"a.json", "--rank", "2"}),
                       doctest::Contains("--rank: unknown flag; did you mean --ranks?"),
                       UsageError);
  CHECK_THROWS_WITH_AS(check_config({"a.json", "--ranks", "two"}),
                       doctest::Contains("--ranks two: must be a whole number"), UsageError);
  CHECK_THROWS_WITH_AS(check_config({"a.json", "--ranks", "0"}),
                       "check-config: --ranks 0: at least one rank is needed", UsageError);
  CHECK_THROWS_WITH_AS(check_config({"/no/such.json"}),
                       "/no/such.json: no such configuration file, and not a base64-encoded one",
                       UsageError);
  const TempFolder directory;
  const auto broken = run_zeroth({"check-config", write(directory, "{\"a\": }")});
  CHECK(broken.status == 2);
  CHECK(contains(broken.err, "ds_config.json:1:7: a: "));
  CHECK(check_config({"--help"}).status == 0);
}

}  // namespace zeroth::launcher::check_config_test
