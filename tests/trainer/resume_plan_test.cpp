#include "trainer/resume_plan.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "checkpoint/commit.h"
#include "checkpoint/posix_file_system.h"
#include "tests/support/temp_folder.h"
#include "trainer/run_plan.h"
#include "trainer/samples.h"

namespace zeroth::trainer::resume_plan_test {
namespace {

namespace fs = std::filesystem;
using From = ResumeFlags::From;

// A checkpoint of one number behind so many steps of 4 samples.
void save(const fs::path& directory, const std::vector<int64_t>& steps, bool states = true) {
  checkpoint::SingleRankGroup ranks;
  checkpoint::Saver saver(checkpoint::PosixFileSystem::make(directory), ranks,
                          {.run_id = "run", .keep = 0});
  for (const int64_t step : steps) {
    checkpoint::Save save = saver.begin(step, 1000);
    checkpoint::RankManifest mine;
    if (states) {
      auto file = save.chunk_file({checkpoint::TensorChunk::full("w", "master", "F32", {1})});
      const float value = 1;
      file.write(0, std::as_bytes(std::span(&value, 1)));
      mine.files.push_back(file.finish(save.chunk_file_name()));
    }
    checkpoint::Manifest facts{.must_equal = {{"optimizer.params.lr", "0.1"}, {"seed", "42"}},
                               .may_change = {{"ranks", "2"}}};
    checkpoint::Counters progress;
    save_progress({.batch = 4,
                   .positions = 4 * step,
                   .samples = 4 * step,
                   .numerics = {.threads = 3, .step = NumericSettings::Step::kGpu}},
                  progress);
    for (const auto& [name, value] : progress) facts.counters["client." + name] = value;
    save.commit(mine, facts);
  }
}

Flags flags(From from, const fs::path& output, const fs::path& directory = {}) {
  Flags flags;
  flags.output = output.string();
  flags.resume.from = from;
  flags.resume.directory = directory.string();
  return flags;
}

std::string refusal(const Flags& flags) {
  return message_of<Error>([&] { find_resume_plan(flags); });
}

}  // namespace

TEST_CASE("a run goes on from the newest checkpoint of its output, or the one that is named") {
  const TempFolder directory;
  const fs::path out = directory / "out", all = fs::canonical(directory.path()) / "out/checkpoints";
  CHECK_FALSE(find_resume_plan(flags(From::kNothing, out)));
  CHECK_FALSE(find_resume_plan(flags(From::kNewestOrNothing, out)));
  save(out / "checkpoints", {4, 8});
  for (const From from : {From::kNewest, From::kNewestOrNothing}) {
    const auto found = find_resume_plan(flags(from, out));
    REQUIRE(found);
    CHECK(found->checkpoint == all / "step-8");
    CHECK(found->from == out);
    CHECK(found->step == 8);
    CHECK(found->batch == 4);
    CHECK(found->positions == 32);
    CHECK(found->samples == 32);
    CHECK((found->numerics == NumericSettings{.threads = 3, .step = NumericSettings::Step::kGpu}));
  }
  for (const char* name :
       {"out", "out/checkpoints", "out/checkpoints/step-8", "out/checkpoint-8"}) {
    CHECK_MESSAGE(find_resume_plan(flags(From::kNamed, "", directory / name))->step == 8, name);
  }
  CHECK(find_resume_plan(flags(From::kNamed, "", directory / "out/checkpoint-4/"))->step == 4);
}

TEST_CASE("nothing starts anew in silence where checkpoints are, or were meant to be") {
  const TempFolder directory;
  const fs::path out = directory / "out";
  CHECK(refusal(flags(From::kNewest, out)) == "--resume: there is no checkpoint in " +
                                                  out.string() +
                                                  "; --resume auto starts from scratch");
  CHECK(refusal(flags(From::kNamed, out, directory / "nowhere")) ==
        "--resume: there is no checkpoint in " + (directory / "nowhere").string());
  fs::create_directories(out / "checkpoints/step-4/zeroth");
  fs::create_directories(out / "step-2");
  write_text(out / "step-2/config.json", "{}");
  for (const From from : {From::kNewest, From::kNewestOrNothing}) {
    const std::string said = refusal(flags(from, out));
    CHECK(said.starts_with("cannot resume from " + out.string() + ": "));
    CHECK(said.find("step-4") != said.npos);
    CHECK(said.find("manifest.json") != said.npos);
    CHECK(said.find("step-2 holds weights only") != said.npos);
  }
  save(directory / "other", {6}, /*states=*/false);
  CHECK(refusal(flags(From::kNamed, "", directory / "other"))
            .find("step-6 is a model without states") != std::string::npos);
}

TEST_CASE("a checkpoint of another program is named") {
  checkpoint::Manifest manifest{.step = 3};
  CHECK(message_of<Error>([&] { parse_resume_plan("out/step-3", manifest); }) ==
        "out/step-3: has no data.batch: it was not saved by finetune");
  manifest.counters["client.data.batch"] = std::string("4");
  CHECK_THROWS_AS(parse_resume_plan("out/step-3", manifest), Error);
}

TEST_CASE("every difference that must not be is refused with both values and what allows it") {
  ResumePlan before;
  before.checkpoint = "out/checkpoints/step-8";
  before.fingerprint.must_equal = {
      {"optimizer.params.lr", "0.1"}, {"seed", "42"}, {"train_batch_size", "4"}};
  before.fingerprint.may_change = {{"ranks", "2"}};
  RunFingerprint now = before.fingerprint;
  CHECK(compare_fingerprints(before, now, {}).empty());
  now.may_change["ranks"] = "4";
  CHECK(compare_fingerprints(before, now, {}) == "ranks was 2, is now 4");
  now.must_equal = {{"optimizer.params.lr", "0.2"}, {"train_batch_size", "8"}};
  const auto refused = [&](const ResumeFlags& flags) {
    return message_of<Error>([&] { compare_fingerprints(before, now, flags); });
  };
  CHECK(refused({}) ==
        "out/checkpoints/step-8 belongs to another run: seed was 42, is now not set; "
        "--seed must stay the same\n  optimizer.params.lr was 0.1, is now 0.2; "
        "--allow-change optimizer.params.lr lets it differ\n  train_batch_size was 4, is now 8; "
        "--allow-batch-change lets it differ\n  to start a new run from its weights, "
        "use --model out/checkpoints/step-8 without --resume");
  const configs::Origins origins = {{"optimizer.params.lr", "auto: --learning_rate"},
                                    {"train_batch_size", "file"}};
  const std::string named =
      message_of<Error>([&] { compare_fingerprints(before, now, {}, origins); });
  CHECK(named.find("\n  optimizer.params.lr (--learning_rate) was 0.1, is now 0.2; ") !=
        std::string::npos);
  CHECK(named.find("\n  train_batch_size was 4, is now") != std::string::npos);
  now.must_equal["seed"] = "42";
  ResumeFlags all;
  all.allow_batch_change = true;
  all.may_change = {"optimizer.params"};
  CHECK(compare_fingerprints(before, now, all) ==
        "optimizer.params.lr was 0.1, is now 0.2, train_batch_size was 4, is now 8, "
        "ranks was 2, is now 4");
  all.may_change = {"optimizer.params.l"};
  CHECK(refused(all).starts_with(
      "out/checkpoints/step-8 belongs to another run: optimizer.params.lr"));
}

TEST_CASE("what a start has measured is kept on the same ranks and processor") {
  ResumePlan before;
  before.numerics = {.threads = 3, .step = NumericSettings::Step::kCpu};
  before.fingerprint.may_change = {{"ranks", "2"}, {"processor", "avx2"}};
  CHECK(numerics_to_keep(before, 2, "avx2") == before.numerics);
  CHECK(numerics_to_keep(before, 1, "avx2") == NumericSettings{});
  CHECK(numerics_to_keep(before, 2, "avx512") == NumericSettings{});
  before.fingerprint.may_change.erase("processor");
  CHECK(numerics_to_keep(before, 2, "avx2") == NumericSettings{});
}

TEST_CASE("a key that may never differ is refused") {
  Flags all = flags(From::kNewestOrNothing, "nowhere");
  all.resume.may_change = {"seed"};
  CHECK(refusal(all) ==
        "--allow-change seed: must be gradient_clipping, dropout, loss_mean, or a key of the "
        "scheduler or of optimizer.params");
}

TEST_CASE("a run goes on behind the samples that it has taken, in epochs as they were cut") {
  // Epochs of 10 samples that end with a short step of 4.
  Samples samples;
  samples.epoch_samples = 10;
  samples.epoch_positions = 12;
  ResumePlan before;
  before.step = 4;
  before.batch = 4;
  before.positions = 16;
  before.samples = 14;
  CHECK(resume_offset(before, samples, 4) == 0);
  samples.epoch_positions = 15;
  CHECK(resume_offset(before, samples, 5) == 15 + 4 - 4 * 5);
  // What drop-last leaves out of an epoch depends on the batch: 14 samples were one epoch of 9.
  before.epochs = {.samples = 9, .positions = 9};
  CHECK(resume_offset(before, samples, 5) == 15 + 5 - 4 * 5);
  // The last step of a run that ended with its samples was short.
  before = {.step = 3, .batch = 4, .positions = 12, .samples = 10, .epochs = {10, 10}};
  samples.epoch_positions = 10;
  CHECK(resume_offset(before, samples, 4) == -2);
}

TEST_CASE("what earlier versions did not save is unknown, and a rank's batch is what it ran") {
  checkpoint::Manifest manifest{.step = 3};
  for (const char* name : {"data.batch", "data.positions", "data.samples", "threads"}) {
    manifest.counters[std::string("client.") + name] = int64_t{5};
  }
  CHECK(parse_resume_plan("out/step-3", manifest).epochs.samples == 0);
  CHECK_FALSE(parse_resume_plan("out/step-3", manifest).rank_batch);
  manifest.may_change = {{"train_micro_batch_size_per_gpu", "4"},
                         {"gradient_accumulation_steps", "3"}};
  CHECK(parse_resume_plan("out/step-3", manifest).rank_batch == 12);
  manifest.may_change["gradient_accumulation_steps"] = "many";
  CHECK_FALSE(parse_resume_plan("out/step-3", manifest).rank_batch);
  checkpoint::Counters saved;
  save_progress({.batch = 4, .positions = 8, .samples = 7, .epochs = {7, 8}, .rank_batch = 2},
                saved);
  for (const auto& [name, value] : saved) manifest.counters["client." + name] = value;
  CHECK(parse_resume_plan("out/step-3", manifest).epochs.samples == 7);
  CHECK(parse_resume_plan("out/step-3", manifest).epochs.positions == 8);
  CHECK(parse_resume_plan("out/step-3", manifest).rank_batch == 2);
}

}  // namespace zeroth::trainer::resume_plan_test
