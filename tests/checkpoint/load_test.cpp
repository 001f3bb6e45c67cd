#include "checkpoint/load.h"

#include <doctest/doctest.h>

#include "tests/checkpoint/fake_disk.h"
#include "tests/checkpoint/rank_group.h"
#include "tests/checkpoint/small_run.h"

namespace zeroth::checkpoint {
namespace {

using Names = std::vector<std::string>;

const Names kBothWell = {"", ""};

// What each rank has loaded; "" of one that loaded nothing.
struct Result {
  Names errors;
  Names names = {"", ""};
  Names passed_by;
};

Result load(const std::shared_ptr<FakeDisk>& disk,
            const std::function<void(Reader&, int)>& action) {
  RankGroup group(2);
  Result result;
  result.errors = group.run([&](Ranks& ranks) {
    const auto loaded =
        load_newest(disk, ranks, [&](Reader& reader) { action(reader, ranks.rank()); });
    if (loaded) result.names[static_cast<size_t>(ranks.rank())] = loaded->name;
    if (loaded && ranks.rank() == 1) result.passed_by = loaded->passed_by;
  });
  return result;
}

void read_master(Reader& reader, int) {
  (void)reader.read_whole("a", "master");
}

}  // namespace

TEST_CASE("all ranks load the newest checkpoint") {
  const Result result = load(three_saves(), read_master);
  CHECK(result.errors == kBothWell);
  CHECK(result.names == Names{"step-12", "step-12"});
  CHECK(result.passed_by.empty());
}

TEST_CASE("a piece that only one rank reads, and is damaged, sends all ranks back together") {
  const auto disk = three_saves();
  disk->bytes_of("step-12/zeroth/pieces-00000.safetensors").back() ^= 1;
  const Result result = load(disk, [](Reader& reader, int rank) {
    (void)reader.read_whole(rank == 0 ? "a" : "b", "exp_avg");  // b's is the last piece
  });
  CHECK(result.errors == kBothWell);
  CHECK(result.names == Names{"step-8", "step-8"});
  REQUIRE(result.passed_by.size() == 1);
  CHECK(result.passed_by[0].starts_with("step-12: rank 1: /fake/step-12/zeroth/pieces-00000"));
}

TEST_CASE("a rank that sees another disk sends all ranks back together") {
  const auto disk = three_saves();
  const auto other = disk->after_end(0);  // all was synced: the same
  other->bytes_of("step-12/zeroth/pieces-00000.safetensors").clear();
  RankGroup group(2);
  Names names(2);
  CHECK(group.run([&](Ranks& ranks) {
    const auto loaded = load_newest(ranks.rank() == 0 ? disk : other, ranks, [](Reader&) {});
    names[static_cast<size_t>(ranks.rank())] = loaded->name;
  }) == kBothWell);
  CHECK(names == Names{"step-8", "step-8"});
}

TEST_CASE("a rank that finds another manifest than rank 0 does not load it") {
  const auto disk = std::make_shared<FakeDisk>(), other = std::make_shared<FakeDisk>();
  OneRank one;
  for (const auto& [where, id] : {std::pair(disk, "one"), std::pair(other, "another")}) {
    Saver saver(where, one, {.run_id = id});
    save(saver, one, 12, 12);
  }
  RankGroup group(2);
  const Names results = group.run([&](Ranks& ranks) {
    (void)load_newest(ranks.rank() == 0 ? disk : other, ranks, [](Reader&) {});
  });
  const std::string start =
      "no checkpoint in /fake can be loaded:\n  step-12: rank 1: /fake/step-12: its manifest has "
      "crc32c ";
  CHECK(results[0].starts_with(start));
  CHECK(results[1].starts_with(start));
}

TEST_CASE("checkpoints that are not complete are passed by, and told") {
  const auto disk = three_saves();
  disk->remove_file("step-12/zeroth/manifest.json");
  const Result result = load(disk, read_master);
  CHECK(result.names == Names{"step-8", "step-8"});
  CHECK(result.passed_by == Names{"step-12: /fake/step-12 is no complete checkpoint: it has no "
                                  "zeroth/manifest.json"});
}

TEST_CASE("what a checkpoint cannot mend is an error on all ranks, and no reason to go back") {
  const Result result = load(three_saves(), [](Reader& reader, int rank) {
    if (rank == 1) (void)reader.read_whole("c", "master");
  });
  CHECK(result.errors[0] ==
        "loading step-12 failed: rank 1: /fake/step-12: master of c is not stored");
  CHECK(result.errors[1] == result.errors[0]);
}

TEST_CASE("a folder without checkpoints is a fresh start, one with broken ones never is") {
  const auto empty = std::make_shared<FakeDisk>();
  const Result fresh = load(empty, read_master);
  CHECK(fresh.errors == kBothWell);
  CHECK(fresh.names == Names{"", ""});
  const auto disk = three_saves();
  for (const char* const step : {"step-4", "step-8", "step-12"}) {
    disk->bytes_of(joined(step, "zeroth/manifest.json")).clear();
  }
  const Result broken = load(disk, read_master);
  CHECK(broken.errors[0] == broken.errors[1]);
  CHECK(broken.errors[0].starts_with("no checkpoint in /fake can be loaded:\n  step-4: /fake/"));
  const Result bad = load(three_saves(), [](Reader&, int) { throw Damaged("worn out"); });
  CHECK(
      bad.errors[1] ==
      "no checkpoint in /fake can be loaded:\n  step-12: rank 0: worn out\n  step-8: rank 0: worn "
      "out\n  step-4: rank 0: worn out");
}

TEST_CASE("a rank that is lost while others load fails them") {
  const Result result = load(three_saves(), [](Reader&, int rank) {
    if (rank == 1) throw MachineEnd{};
  });
  CHECK(result.errors == Names{"rank 1 is lost", "lost"});
}

TEST_CASE("a checkpoint that is named is loaded, or refused on all ranks") {
  const auto disk = three_saves();
  const auto named = [&](const std::string& name, auto action) {
    RankGroup group(2);
    return group.run([&](Ranks& ranks) {
      const Loaded loaded =
          load_named(disk, name, ranks, [&](Reader& reader) { action(reader, ranks.rank()); });
      if (loaded.step != 4) throw Error("another step");
    });
  };
  CHECK(named("step-4", read_master) == kBothWell);
  CHECK(named("step-5", read_master)[1] ==
        "loading /fake/step-5 failed: rank 0: /fake/step-5 is no complete checkpoint: it has no "
        "zeroth/manifest.json");
  CHECK(named("step-4", [](Reader&, int rank) {
          if (rank == 1) throw Damaged("worn out");
        })[0] == "loading /fake/step-4 failed: rank 1: worn out");
}

}  // namespace zeroth::checkpoint
