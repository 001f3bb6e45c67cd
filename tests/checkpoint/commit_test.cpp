#include "checkpoint/commit.h"

#include <doctest/doctest.h>

#include <cerrno>

#include "base/files/crc32c.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/small_run.h"
#include "tests/checkpoint/thread_rank_group.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::commit_test {
namespace {

using Names = std::vector<std::string>;
using Kind = FaultyFileSystem::Fault::Kind;

// Both ranks of a run do this after taking the folder.
Names run(const std::shared_ptr<FaultyFileSystem>& file_system,
          const std::function<void(Saver&, RankGroup&)>& work,
          const SaverOptions& options = {.run_id = "run"}) {
  ThreadRankGroup group(2);
  return group.run([&](RankGroup& ranks) {
    Saver saver(file_system, ranks, options);
    work(saver, ranks);
  });
}

const Names kBothWell = {"", ""};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

}  // namespace

TEST_CASE("two ranks save a checkpoint, which has what both wrote") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  std::vector<CommitResult> done(2);
  CHECK(run(file_system, [&](Saver& saver, RankGroup& ranks) {
          done[static_cast<size_t>(ranks.rank())] = save(saver, ranks, 8, 3);
        }) == kBothWell);
  CHECK(done[0].name == "step-8");
  CHECK(done[0].crc == done[1].crc);
  CHECK(done[1].warnings.empty());
  CHECK(names_in(*file_system) == Names{".owner-1", "latest", "step-8"});
  CHECK(file_system->bytes_of("latest") == "step-8\n");
  CHECK(load_newest(file_system) == 3);
  const Manifest manifest = CheckpointReader(file_system, "step-8").manifest();
  CHECK(manifest.step == 8);
  CHECK(manifest.run_id == "run");
  CHECK(manifest.attempt == "1.1");
  CHECK(manifest.written > 1'600'000'000);
  CHECK(!manifest.parent);
  CHECK(manifest.files.size() == 2);
}

TEST_CASE("each save names the one before, and where the run went on from") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  CommitResult first, second;
  run(file_system, [&](Saver& saver, RankGroup& ranks) {
    const CommitResult one = save(saver, ranks, 8, 3), two = save(saver, ranks, 9, 4);
    if (ranks.rank() == 0) first = one, second = two;
  });
  CHECK(CheckpointReader(file_system, "step-9").manifest().parent == Parent{8, first.crc});
  CHECK(CheckpointReader(file_system, "step-9").manifest_crc() == second.crc);
  run(file_system, [&](Saver& saver, RankGroup& ranks) { save(saver, ranks, 10, 5); },
      {.run_id = "again", .parent = Parent{9, second.crc}});
  CHECK(CheckpointReader(file_system, "step-10").manifest().parent == Parent{9, second.crc});
  CHECK(CheckpointReader(file_system, "step-10").manifest().attempt == "2.1");
}

TEST_CASE("the newest ones stay, and those that are named") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  const auto work = [&](Saver& saver, RankGroup& ranks) {
    saver.keep(2, {2});
    for (const int64_t step : {1, 2, 3, 4, 5, 6}) save(saver, ranks, step, step);
  };
  CHECK(run(file_system, work) == kBothWell);
  CHECK(names_in(*file_system) == Names{".owner-1", "latest", "step-2", "step-5", "step-6"});
  // Steps that are smaller than those of an abandoned end are the newer ones all the same.
  CHECK(run(file_system, [&](Saver& saver, RankGroup& ranks) { save(saver, ranks, 3, 33); },
            {.run_id = "run", .parent = Parent{2, 0}}) == kBothWell);
  CHECK(names_in(*file_system) == Names{".owner-2", "latest", "step-3", "step-6"});
  CHECK(load_newest(file_system) == 33);
  CHECK(run(file_system, [&](Saver& saver, RankGroup& ranks) { save(saver, ranks, 7, 7); },
            {.run_id = "run", .keep = 0}) == kBothWell);
  CHECK(names_in(*file_system).size() == 5);
}

TEST_CASE("a step that is saved again replaces the one that was there, with or without exchange") {
  for (const bool has_exchange : {true, false}) {
    const auto file_system = std::make_shared<FaultyFileSystem>();
    file_system->set_has_exchange(has_exchange);
    CHECK(run(file_system, [&](Saver& saver, RankGroup& ranks) {
            save(saver, ranks, 8, 1);
            save(saver, ranks, 8, 2);
          }) == kBothWell);
    CHECK(names_in(*file_system) == Names{".owner-1", "latest", "step-8"});
    CHECK(load_newest(file_system) == 2);
  }
}

TEST_CASE("a rank that fails at any stage fails all by name, and nothing is committed") {
  const auto fails_on = [](std::vector<int> bad, const std::string& stage) {
    const auto file_system = std::make_shared<FaultyFileSystem>();
    run(file_system, [](Saver& saver, RankGroup& ranks) { save(saver, ranks, 4, 1); });
    const auto results = run(file_system, [&](Saver& saver, RankGroup& ranks) {
      const bool is_bad = std::find(bad.begin(), bad.end(), ranks.rank()) != bad.end();
      Save attempt = saver.begin(8, 1000);
      RankManifest mine;
      attempt.run_phase("planning", [&] {
        if (is_bad && stage == "planning") throw Error("no plan");
      });
      attempt.run_phase("writing", [&] {
        if (is_bad && stage == "writing") throw std::bad_alloc();
        const auto chunks = pieces_of(small_model(), ranks.rank(), ranks.size());
        mine.files.push_back(write_pieces(*file_system, attempt.directory(), ranks.rank(), chunks));
      });
      Manifest facts;
      if (is_bad && stage == "listing what was written") facts.must_equal["x"] = "\xff";
      attempt.commit(mine, facts, small_model());
    });
    CHECK(results[0] == results[1]);
    CHECK(contains(results[0], "saving step 8: " + stage + " failed: "));
    for (const int rank : {0, 1}) {
      const bool named = contains(results[0], fmt::format("rank {}: ", rank));
      CHECK(named == (std::find(bad.begin(), bad.end(), rank) != bad.end()));
    }
    CHECK(names_in(*file_system) == Names{".owner-2", "latest", "step-4"});
    CHECK(load_newest(file_system) == 1);
  };
  for (const char* const stage : {"planning", "writing", "listing what was written"}) {
    fails_on({0}, stage);
    fails_on({1}, stage);
    fails_on({0, 1}, stage);
  }
}

TEST_CASE("a rank that is lost without a word fails the others, and nothing of it stays") {
  for (const int lost : {0, 1}) {
    const auto file_system = std::make_shared<FaultyFileSystem>();
    run(file_system, [](Saver& saver, RankGroup& ranks) { save(saver, ranks, 4, 1); });
    const auto results = run(file_system, [&](Saver& saver, RankGroup& ranks) {
      Save attempt = saver.begin(8, 1000);
      if (ranks.rank() == lost) throw MachineEnd{};
      attempt.run_phase("writing", [] {});
    });
    CHECK(results[static_cast<size_t>(lost)] == "lost");
    CHECK(results[static_cast<size_t>(1 - lost)] == fmt::format("rank {} is lost", lost));
    CHECK(load_newest(file_system) == 1);
    CHECK(run(file_system, [](Saver& saver, RankGroup& ranks) { save(saver, ranks, 8, 2); }) ==
          kBothWell);
    CHECK(temporary_names(*file_system).empty());
  }
}

TEST_CASE("ranks that are not at the same step or configuration are told apart") {
  const auto results = [](auto step, auto model) {
    const auto file_system = std::make_shared<FaultyFileSystem>();
    return run(file_system, [&](Saver& saver, RankGroup& ranks) {
      Save attempt = saver.begin(step(ranks.rank()), 1000);
      RankManifest mine;
      attempt.run_phase("writing", [&] {
        // In rank 0's folder, whatever this rank believes.
        const auto chunks = pieces_of(small_model(), ranks.rank(), ranks.size());
        const std::string directory = temporary_name(step(0), {saver.generation(), 1});
        mine.files.push_back(write_pieces(*file_system, directory, ranks.rank(), chunks));
      });
      attempt.commit(mine, {.must_equal = {{"model", model(ranks.rank())}}});
    })[1];
  };
  const auto same_step = [](int) { return int64_t{8}; };
  CHECK(contains(results([](int rank) { return int64_t{8 + rank}; }, [](int) { return "m"; }),
                 "rank 0 saves step 8, rank 1 step 9"));
  CHECK(contains(results(same_step, [](int rank) { return rank == 0 ? "m" : "n"; }),
                 "model is m on rank 0 and n on rank 1"));
}

TEST_CASE("what is missing of the model, or written twice, is not committed") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  const auto attempt = [&](auto change) {
    return run(file_system, [&](Saver& saver, RankGroup& ranks) {
      Save one = saver.begin(8, 1000);
      RankManifest mine;
      one.run_phase("writing", [&] {
        auto chunks = pieces_of(small_model(), ranks.rank(), ranks.size());
        if (ranks.rank() == 1) change(chunks);
        mine.files.push_back(write_pieces(*file_system, one.directory(), ranks.rank(), chunks));
      });
      one.commit(mine, {}, small_model());
    })[1];
  };
  CHECK(contains(attempt([](auto& chunks) { chunks.pop_back(); }),
                 "exp_avg of b: its pieces hold 2 of 5 elements of [5]; the first missing one is "
                 "2"));
  CHECK(contains(attempt([](auto& chunks) { chunks[0].range.begin -= 1; }),
                 "have elements in common"));
  CHECK(load_newest(file_system) == -1);
  CHECK(temporary_names(*file_system).empty());
}

TEST_CASE("files that no rank reports are listed, and those that several ranks write") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  const std::string text = "0123456789";
  const auto work = [&](Saver& saver, RankGroup& ranks) {
    Save one = saver.begin(8, 1000);
    RankManifest mine;
    one.run_phase("writing", [&] {
      const auto chunks = pieces_of(small_model(), ranks.rank(), ranks.size());
      mine.files.push_back(write_pieces(*file_system, one.directory(), ranks.rank(), chunks));
      if (ranks.rank() == 0) {
        write_text(*file_system, join_path(one.directory(), "config.json"), "{}\n");
        write_text(*file_system, join_path(one.directory(), "model.safetensors"), text);
      }
      const int64_t offset = ranks.rank() == 0 ? 4 : 0, size = ranks.rank() == 0 ? 6 : 4;
      mine.parts.push_back({"model.safetensors", offset, size,
                            crc32c(std::string_view(text).substr(static_cast<size_t>(offset),
                                                                 static_cast<size_t>(size)))});
    });
    one.commit(mine, {.counters = {{"salt", int64_t{0}}}});
  };
  CHECK(run(file_system, work) == kBothWell);
  const auto files = CheckpointReader(file_system, "step-8").manifest().files;
  REQUIRE(files.size() == 4);
  CHECK(files[0] == StoredFile{"config.json", 3, crc32c("{}\n")});
  CHECK(files[1] == StoredFile{"model.safetensors", 10, crc32c(text)});
  CHECK(load_newest(file_system) == 0);
}

TEST_CASE("a file that is not as its rank says is not committed") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  const auto attempt = [&](auto change) {
    return run(file_system, [&](Saver& saver, RankGroup& ranks) {
      Save one = saver.begin(8, 1000);
      RankManifest mine;
      one.run_phase("writing", [&] {
        const auto chunks = pieces_of(small_model(), ranks.rank(), ranks.size());
        mine.files.push_back(write_pieces(*file_system, one.directory(), ranks.rank(), chunks));
        if (ranks.rank() == 1) change(join_path(one.directory(), one.chunk_file_name()));
      });
      one.commit(mine, {}, small_model());
    })[0];
  };
  CHECK(contains(attempt([&](const std::string& file) { file_system->bytes_of(file) += "x"; }),
                 "pieces-00001.safetensors has "));
  CHECK(contains(attempt([&](const std::string& file) { file_system->remove_file(file); }),
                 "pieces-00001.safetensors is missing, though a rank wrote it"));
  CHECK(load_newest(file_system) == -1);
}

TEST_CASE("room is looked for before anything is written") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  file_system->set_free_bytes(int64_t{5} << 20);
  const auto results =
      run(file_system, [&](Saver& saver, RankGroup&) { (void)saver.begin(8, 1 << 20); });
  CHECK(results[1] ==
        "saving step 8: preparing failed: rank 0: /fake: a checkpoint takes 6.00 MiB and 5.00 MiB "
        "are free there");
  CHECK(results[0] == results[1]);
  CHECK(names_in(*file_system) == Names{".owner-1"});
}

TEST_CASE("an owner that was taken for dead cannot commit any more") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  SingleRankGroup one;
  Saver old(file_system, one, {.run_id = "old"});
  Save attempt = old.begin(8, 1000);
  const auto chunks = pieces_of(small_model(), 0, 1);
  const RankManifest mine{{write_pieces(*file_system, attempt.directory(), 0, chunks, 1)}};
  Saver fresh(file_system, one, {.run_id = "fresh", .description = "process 7 on host"});
  CHECK(message_of<Error>([&] { attempt.commit(mine, {}); }) != "no exception");  // cleared away
  save(fresh, one, 8, 2);
  CHECK(message_of<Error>([&] { save(old, one, 9, 3); }) ==
        "saving step 9: preparing failed: rank 0: /fake now belongs to another run (generation 2: "
        "process 7 on host; this run has 1): nothing is saved there");
  CHECK(load_newest(file_system) == 2);
}

TEST_CASE("an owner that is fenced off between its last byte and the rename does not rename") {
  // The new owner comes while the old one writes its manifest, and clears nothing yet.
  const auto file_system = std::make_shared<FaultyFileSystem>();
  SingleRankGroup one;
  Saver old(file_system, one, {.run_id = "old"});
  Save attempt = old.begin(8, 1000);
  const RankManifest mine{
      {write_pieces(*file_system, attempt.directory(), 0, pieces_of(small_model(), 0, 1))}};
  (void)Owner::claim(file_system, "somebody");
  CHECK(contains(
      message_of<Error>([&] { attempt.commit(mine, {}); }),
      "saving step 8: committing failed: rank 0: /fake now belongs to another run (generation "
      "2: somebody; this run has 1)"));
  CHECK(load_newest(file_system) == -1);
}

TEST_CASE("any call of a save that fails leaves what was there, and the next save is well") {
  for (const bool again : {false, true}) {  // onto a step that is there
    const int64_t step = again ? 4 : 8;
    const auto prepared = [] {
      const auto file_system = std::make_shared<FaultyFileSystem>();
      run(file_system, [](Saver& saver, RankGroup& ranks) { save(saver, ranks, 4, 1); });
      return file_system;
    };
    // One rank, so that call k is always the same one.
    const auto saves = [&](const std::shared_ptr<FaultyFileSystem>& file_system, int64_t salt) {
      SingleRankGroup one;
      Saver saver(file_system, one, {.run_id = "run"});
      return save(saver, one, step, salt);
    };
    auto counted = prepared();
    counted->set_fault({});
    saves(counted, 2);
    const int64_t calls = counted->calls();
    CHECK(calls > 20);
    for (int64_t call = 1; call <= calls; ++call) {
      for (const int error : {ENOSPC, EDQUOT, EIO}) {
        const auto file_system = prepared();
        file_system->set_fault(FaultyFileSystem::Fault{call, Kind::kError, error});
        std::string said;
        CommitResult done;
        try {
          done = saves(file_system, 2);
        } catch (const Error& failed) {
          said = failed.what();
        }
        file_system->set_fault({});
        // Either it says what failed, or it stands with a warning.
        CHECK((!said.empty() || !done.warnings.empty()));
        const int64_t loaded = load_newest(file_system);
        if (said.empty()) CHECK(loaded == 2);
        CHECK((loaded == 1 || loaded == 2));
        CHECK(saves(file_system, 3).warnings.empty());
        CHECK(load_newest(file_system) == 3);
        CHECK(temporary_names(*file_system).empty());
      }
    }
  }
}

TEST_CASE("short writes change nothing") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  SingleRankGroup one;
  Saver saver(file_system, one, {.run_id = "run"});
  for (int64_t call = 1; call < 40; ++call) {
    file_system->set_fault(FaultyFileSystem::Fault{call, Kind::kShort, 0});
    save(saver, one, 8, call);
    CHECK(load_newest(file_system) == call);
  }
}

TEST_CASE("something in the way of a checkpoint's name is told") {
  const auto file_system = std::make_shared<FaultyFileSystem>();
  write_text(*file_system, "step-8", "mine");
  const auto results =
      run(file_system, [&](Saver& saver, RankGroup& ranks) { save(saver, ranks, 8, 1); });
  CHECK(results[1] ==
        "saving step 8: committing failed: rank 0: /fake/step-8 is in the way: it is "
        "not a folder");
  CHECK(names_in(*file_system) == Names{".owner-1", "step-8"});
}

}  // namespace zeroth::checkpoint::commit_test
