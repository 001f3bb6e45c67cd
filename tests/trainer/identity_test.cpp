#include "trainer/identity.h"

#include <doctest/doctest.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "tests/trainer/workbench.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

Identity identity(const Workbench& bench, const std::vector<std::string>& more = {},
                  const char* data = "train.bin") {
  std::vector<std::string> arguments = {
      "--model", (bench / "model").string(), "--data", (bench / data).string(), "--seq-len",
      "16",      "--global-batch",           "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return identity_of(make_plan(parse_flags(arguments), 1));
}

// Keys by which two differ.
std::vector<std::string> keys(const checkpoint::Texts& one, const checkpoint::Texts& other) {
  std::vector<std::string> keys;
  for (const auto& difference : checkpoint::differences(one, other)) keys.push_back(difference.key);
  return keys;
}

using Keys = std::vector<std::string>;

}  // namespace

TEST_CASE("what decides an update must be equal; where and how fast it is made may change") {
  const Workbench bench;
  const Identity usual = identity(bench);
  const auto must = [&](const std::vector<std::string>& more) {
    return keys(usual.must_equal, identity(bench, more).must_equal);
  };
  const auto may = [&](const std::vector<std::string>& more) {
    return keys(usual.may_change, identity(bench, more).may_change);
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
  CHECK(identity(bench, cosine).must_equal == identity(bench, longer).must_equal);
}

TEST_CASE("another model, file or tokenizer is another run") {
  const Workbench bench;
  const Identity usual = identity(bench, {}, "qa.jsonl");
  CHECK(usual.must_equal.contains("tokenizer.crc32c"));
  const auto now = [&] {
    return keys(usual.must_equal, identity(bench, {}, "qa.jsonl").must_equal);
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
  const Identity usual = identity(bench, {}, "qa.jsonl");
  CHECK(usual.must_equal.at("data.version") == "2");
  CHECK(usual.must_equal.at("data.fields") == "question|\\n|answer");
  const auto must = [&](const std::vector<std::string>& more) {
    return keys(usual.must_equal, identity(bench, more, "qa.jsonl").must_equal);
  };
  CHECK(must({"--prompt-field", "question", "--completion-field", "answer"}).empty());
  CHECK(must({"--separator", "\\n"}).empty());
  CHECK(must({"--separator", ""}) == Keys{"data.fields"});
  CHECK(must({"--long-text", "chunk"}).empty());  // pairs are not joined
  CHECK(must({"--max_train_samples", "13"}).empty());
  CHECK(must({"--max_train_samples", "12"}) == Keys{"data.samples"});
  CHECK(data_version_of(usual) == 2);
  CHECK(data_version_of({}) == 1);
}

TEST_CASE("a run of an earlier version keeps what that wrote of its samples") {
  const Workbench bench;
  RunPlan plan = make_plan(parse_flags({"--model", (bench / "model").string(), "--data",
                                        (bench / "qa.jsonl").string(), "--global-batch", "4"}),
                           1);
  plan.samples.version = 1;
  const Identity before = identity_of(plan);
  CHECK_FALSE(before.must_equal.contains("data.version"));
  CHECK(before.must_equal.at("data.fields") == "||");
  CHECK(before.must_equal.at("data.long_text") == "cut");
}

TEST_CASE("a small file's mark is that of all its bytes; a large one's of parts, both ends too") {
  const TempFolder folder;
  write_text(folder / "small", "123456789");
  CHECK(mark_of(folder / "small").bytes == 9);
  CHECK(mark_of(folder / "small").crc == crc32c("123456789"));
  write_text(folder / "empty", "");
  CHECK(mark_of(folder / "empty").crc == 0);

  std::string large(size_t{100} << 20, 'x');
  const auto mark = [&] {
    write_text(folder / "large", large);
    return mark_of(folder / "large").crc;
  };
  const uint32_t first = mark();
  large.back() = 'y';
  const uint32_t second = mark();
  CHECK(second != first);
  large.front() = 'y';
  CHECK(mark() != second);
  CHECK_THROWS_WITH_AS(
      mark_of(folder / "none"),
      ((folder / "none").string() + " cannot be read: No such file or directory").c_str(), Error);
  CHECK_THROWS_AS(mark_of(folder.path()), Error);
}

TEST_CASE("only what decides the rate and the step may be allowed to differ") {
  for (const char* key : {"optimizer.params.lr", "scheduler", "scheduler.params.warmup_num_steps",
                          "gradient_clipping", "dropout", "loss_mean"}) {
    CHECK_MESSAGE(may_be_allowed(key), key);
  }
  for (const char* key : {"optimizer.type", "data.crc32c", "model.hidden_size", "seed",
                          "tokenizer.crc32c", "train_batch_size", "schedulers"}) {
    CHECK_MESSAGE(!may_be_allowed(key), key);
  }
}

}  // namespace zeroth::trainer
