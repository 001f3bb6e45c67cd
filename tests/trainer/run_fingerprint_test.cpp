#include "trainer/run_fingerprint.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "tests/trainer/workbench.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::run_fingerprint_test {
namespace {

RunFingerprint fingerprint(const Workbench& bench, const std::vector<std::string>& more = {},
                           const char* data = "train.bin") {
  std::vector<std::string> arguments = {
      "--model", (bench / "model").string(), "--data", (bench / data).string(), "--seq-len",
      "16",      "--global-batch",           "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return compute_fingerprint(make_plan(parse_flags(arguments), 1));
}

// Keys by which two differ.
std::vector<std::string> keys(const checkpoint::StringMap& one,
                              const checkpoint::StringMap& other) {
  std::vector<std::string> keys;
  for (const auto& difference : checkpoint::differences(one, other)) keys.push_back(difference.key);
  return keys;
}

using Keys = std::vector<std::string>;

}  // namespace

TEST_CASE("what decides an update must be equal; where and how fast it is made may change") {
  const Workbench bench;
  const RunFingerprint usual = fingerprint(bench);
  const auto must = [&](const std::vector<std::string>& more) {
    return keys(usual.must_equal, fingerprint(bench, more).must_equal);
  };
  const auto may = [&](const std::vector<std::string>& more) {
    return keys(usual.may_change, fingerprint(bench, more).may_change);
  };
  CHECK(must({}).empty());
  CHECK(must({"--lr", "1e-4"}) == Keys{"optimizer.params.lr"});
  CHECK(must({"--weight-decay", "0.1"}) == Keys{"optimizer.params.weight_decay"});
  CHECK(must({"--seed", "5"}) == Keys{"seed"});
  CHECK(must({"--no-shuffle"}) == Keys{"data.shuffled"});
  CHECK(must({"--max_train_samples", "20"}) == Keys{"data.samples"});
  CHECK(must({"--max-grad-norm", "2"}) == Keys{"gradient_clipping"});
  CHECK(must({"--dropout", "0.1"}) == Keys{"dropout"});
  CHECK(must({"--lr_scheduler_type", "cosine"}) == Keys{"scheduler"});
  CHECK(must({"--loss-mean", "micro-batch"}) == Keys{"loss_mean"});
  CHECK(must({"--bf16", "--micro-batch", "1", "--gradient-checkpointing", "--steps", "3"}).empty());
  CHECK(may({"--steps", "3"}) == Keys{"steps"});
  CHECK(may({"--micro-batch", "1"}) ==
        Keys{"gradient_accumulation_steps", "train_micro_batch_size_per_gpu"});
  // A schedule that ends elsewhere is the same one.
  const std::vector<std::string> cosine = {"--lr_scheduler_type", "cosine", "--steps", "10"};
  const std::vector<std::string> longer = {"--lr_scheduler_type", "cosine", "--steps", "20"};
  CHECK(fingerprint(bench, cosine).must_equal == fingerprint(bench, longer).must_equal);
}

TEST_CASE("another model, file or tokenizer is another run") {
  const Workbench bench;
  const RunFingerprint usual = fingerprint(bench, {}, "qa.jsonl");
  CHECK(usual.must_equal.contains("tokenizer.crc32c"));
  const auto now = [&] {
    return keys(usual.must_equal, fingerprint(bench, {}, "qa.jsonl").must_equal);
  };
  const std::string lines = bench.read("qa.jsonl");
  bench.write("qa.jsonl", lines + "\n");
  CHECK(now() == Keys{"data.bytes", "data.crc32c"});
  bench.write("qa.jsonl", lines);
  const std::string config = bench.read("model/config.json");
  auto json = nlohmann::json::parse(config);
  json["rms_norm_eps"] = 0.25;
  json["torch_dtype"] = "float16";
  json["_name_or_path"] = "elsewhere";
  bench.write("model/config.json", json.dump());
  CHECK(now() == Keys{"model.rms_norm_eps"});
  bench.write("model/config.json", config);
  bench.write("model/tokenizer.json", bench.read("model/tokenizer.json") + " ");
  CHECK(now() == Keys{"tokenizer.crc32c"});
}

TEST_CASE("how samples are made is a part of the run, however it is spelled") {
  const Workbench bench;
  const RunFingerprint usual = fingerprint(bench, {}, "qa.jsonl");
  CHECK(usual.must_equal.at("data.version") == "3");
  CHECK(usual.must_equal.at("data.fields") == "question|\\n|answer");
  const auto must = [&](const std::vector<std::string>& more) {
    return keys(usual.must_equal, fingerprint(bench, more, "qa.jsonl").must_equal);
  };
  CHECK(must({"--prompt-field", "question", "--completion-field", "answer"}).empty());
  CHECK(must({"--separator", "\\n"}).empty());
  CHECK(must({"--separator", ""}) == Keys{"data.fields"});
  CHECK(must({"--long-text", "chunk"}).empty());  // pairs are not joined
  CHECK(must({"--max_train_samples", "13"}).empty());
  CHECK(must({"--max_train_samples", "12"}) == Keys{"data.samples"});
  CHECK(read_data_version(usual) == 3);
  RunFingerprint older;
  older.must_equal["data.version"] = "2";
  CHECK(read_data_version(older) == 2);
  CHECK(read_data_version({}) == 1);
}

TEST_CASE("a run of an earlier version keeps what that wrote of its samples") {
  const Workbench bench;
  RunPlan plan = make_plan(parse_flags({"--model", (bench / "model").string(), "--data",
                                        (bench / "qa.jsonl").string(), "--global-batch", "4"}),
                           1);
  plan.samples.version = 1;
  const RunFingerprint before = compute_fingerprint(plan);
  CHECK_FALSE(before.must_equal.contains("data.version"));
  CHECK(before.must_equal.at("data.fields") == "||");
  CHECK(before.must_equal.at("data.long_text") == "cut");
}

TEST_CASE("a small file's mark is that of all its bytes; a large one's of parts, both ends too") {
  const TempFolder directory;
  write_text(directory / "small", "123456789");
  CHECK(digest_file(directory / "small").bytes == 9);
  CHECK(digest_file(directory / "small").crc == crc32c("123456789"));
  write_text(directory / "empty", "");
  CHECK(digest_file(directory / "empty").crc == 0);

  std::string large(size_t{100} << 20, 'x');
  const auto mark = [&] {
    write_text(directory / "large", large);
    return digest_file(directory / "large").crc;
  };
  const uint32_t first = mark();
  large.back() = 'y';
  const uint32_t second = mark();
  CHECK(second != first);
  large.front() = 'y';
  CHECK(mark() != second);
  CHECK_THROWS_WITH_AS(
      digest_file(directory / "none"),
      ((directory / "none").string() + " cannot be read: No such file or directory").c_str(),
      Error);
  CHECK_THROWS_AS(digest_file(directory.path()), Error);
}

TEST_CASE("only what decides the rate and the step may be allowed to differ") {
  for (const char* key : {"optimizer.params.lr", "scheduler", "scheduler.params.warmup_num_steps",
                          "gradient_clipping", "dropout", "loss_mean"}) {
    CHECK_MESSAGE(is_changeable(key), key);
  }
  for (const char* key : {"optimizer.type", "data.crc32c", "model.hidden_size", "seed",
                          "tokenizer.crc32c", "train_batch_size", "schedulers"}) {
    CHECK_MESSAGE(!is_changeable(key), key);
  }
}

}  // namespace zeroth::trainer::run_fingerprint_test
