#include "checkpoint/find.h"

#include <doctest/doctest.h>

#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/read_whole.h"
#include "tests/checkpoint/small_run.h"
#include "tests/checkpoint/thread_rank_group.h"

namespace zeroth::checkpoint::load_test {
namespace {

using Names = std::vector<std::string>;

const Names kBothWell = {"", ""};

// What each rank has loaded; "" of one that loaded nothing.
struct Result {
  Names errors;
  Names names = {"", ""};
  Names skipped;
};

Result load(const std::shared_ptr<FaultyFileSystem>& file_system,
            const std::function<void(CheckpointReader&, int)>& action) {
  ThreadRankGroup group(2);
  Result result;
  result.errors = group.run([&](RankGroup& ranks) {
    const auto loaded = load_newest(
        file_system, ranks, [&](CheckpointReader& reader) { action(reader, ranks.rank()); });
    if (loaded) result.names[static_cast<size_t>(ranks.rank())] = loaded->name;
    if (loaded && ranks.rank() == 1) result.skipped = loaded->skipped;
  });
  return result;
}

void read_master(CheckpointReader& reader, int) {
  (void)read_whole(reader, "a", "master");
}

}  // namespace

TEST_CASE("all ranks load the newest checkpoint") {
  const Result result = load(three_saves(), read_master);
  CHECK(result.errors == kBothWell);
  CHECK(result.names == Names{"step-12", "step-12"});
  CHECK(result.skipped.empty());
}

TEST_CASE("a piece that only one rank reads, and is damaged, sends all ranks back together") {
  const auto file_system = three_saves();
  file_system->bytes_of("step-12/zeroth/pieces-00000.safetensors").back() ^= 1;
  const Result result = load(file_system, [](CheckpointReader& reader, int rank) {
    (void)read_whole(reader, rank == 0 ? "a" : "b", "exp_avg");  // b's is the last piece
  });
  CHECK(result.errors == kBothWell);
  CHECK(result.names == Names{"step-8", "step-8"});
  REQUIRE(result.skipped.size() == 1);
  CHECK(result.skipped[0].starts_with("step-12: rank 1: /fake/step-12/zeroth/pieces-00000"));
}

TEST_CASE("a rank that sees another disk sends all ranks back together") {
  const auto file_system = three_saves();
  const auto other = file_system->after_end(0);  // all was synced: the same
  other->bytes_of("step-12/zeroth/pieces-00000.safetensors").clear();
  ThreadRankGroup group(2);
  Names names(2);
  CHECK(group.run([&](RankGroup& ranks) {
    const auto loaded =
        load_newest(ranks.rank() == 0 ? file_system : other, ranks, [](CheckpointReader&) {});
    names[static_cast<size_t>(ranks.rank())] = loaded->name;
  }) == kBothWell);
  CHECK(names == Names{"step-8", "step-8"});
}

TEST_CASE("a rank that finds another manifest than rank 0 does not load it") {
  const auto file_system = std::make_shared<FaultyFileSystem>(),
             other = std::make_shared<FaultyFileSystem>();
  SingleRankGroup one;
  for (const auto& [where, id] : {std::pair(file_system, "one"), std::pair(other, "another")}) {
    Saver saver(where, one, {.run_id = id});
    save(saver, one, 12, 12);
  }
  ThreadRankGroup group(2);
  const Names results = group.run([&](RankGroup& ranks) {
    (void)load_newest(ranks.rank() == 0 ? file_system : other, ranks, [](CheckpointReader&) {});
  });
  const std::string start =
      "no checkpoint in /fake can be loaded:\n  step-12: rank 1: /fake/step-12: its manifest has "
      "crc32c ";
  CHECK(results[0].starts_with(start));
  CHECK(results[1].starts_with(start));
}

TEST_CASE("checkpoints that are not complete are passed by, and told") {
  const auto file_system = three_saves();
  file_system->remove_file("step-12/zeroth/manifest.json");
  const Result result = load(file_system, read_master);
  CHECK(result.names == Names{"step-8", "step-8"});
  CHECK(result.skipped == Names{"step-12: /fake/step-12 is not a complete checkpoint: it has no "
                                "zeroth/manifest.json"});
}

TEST_CASE("what a checkpoint cannot mend is an error on all ranks, and no reason to go back") {
  const Result result = load(three_saves(), [](CheckpointReader& reader, int rank) {
    if (rank == 1) reader.read("c", "master", TensorSlice::full({1}), {0, 1}, {});
  });
  CHECK(result.errors[0] ==
        "loading step-12 failed: rank 1: /fake/step-12: master of c [0:1](0:1) is not stored");
  CHECK(result.errors[1] == result.errors[0]);
}

TEST_CASE("a folder without checkpoints is a fresh start, one with broken ones never is") {
  const auto empty = std::make_shared<FaultyFileSystem>();
  const Result fresh = load(empty, read_master);
  CHECK(fresh.errors == kBothWell);
  CHECK(fresh.names == Names{"", ""});
  const auto file_system = three_saves();
  for (const char* const step : {"step-4", "step-8", "step-12"}) {
    file_system->bytes_of(join_path(step, "zeroth/manifest.json")).clear();
  }
  const Result broken = load(file_system, read_master);
  CHECK(broken.errors[0] == broken.errors[1]);
  CHECK(broken.errors[0].starts_with("no checkpoint in /fake can be loaded:\n  step-4: /fake/"));
  const Result bad =
      load(three_saves(), [](CheckpointReader&, int) { throw CorruptCheckpoint("worn out"); });
  CHECK(
      bad.errors[1] ==
      "no checkpoint in /fake can be loaded:\n  step-12: rank 0: worn out\n  step-8: rank 0: worn "
      "out\n  step-4: rank 0: worn out");
}

TEST_CASE("a rank that is lost while others load fails them") {
  const Result result = load(three_saves(), [](CheckpointReader&, int rank) {
    if (rank == 1) throw MachineEnd{};
  });
  CHECK(result.errors == Names{"rank 1 is lost", "lost"});
}

TEST_CASE("a checkpoint that is named is loaded, or refused on all ranks") {
  const auto file_system = three_saves();
  const auto named = [&](const std::string& name, auto action) {
    ThreadRankGroup group(2);
    return group.run([&](RankGroup& ranks) {
      const LoadedCheckpoint loaded =
          load_named(file_system, name, ranks,
                     [&](CheckpointReader& reader) { action(reader, ranks.rank()); });
      if (loaded.step != 4) throw Error("another step");
    });
  };
  CHECK(named("step-4", read_master) == kBothWell);
  CHECK(named("step-5", read_master)[1] ==
        "loading /fake/step-5 failed: rank 0: /fake/step-5 is not a complete checkpoint: it has no "
        "zeroth/manifest.json");
  CHECK(named("step-4", [](CheckpointReader&, int rank) {
          if (rank == 1) throw CorruptCheckpoint("worn out");
        })[0] == "loading /fake/step-4 failed: rank 1: worn out");
}

}  // namespace zeroth::checkpoint::load_test
