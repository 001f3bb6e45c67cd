#include "checkpoint/find.h"

#include <doctest/doctest.h>

#include "checkpoint/posix_file_system.h"
#include "tests/checkpoint/faulty_file_system.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::find_test {
namespace {

namespace fs = std::filesystem;

std::string fault_of(FileSystem& file_system, int64_t step) {
  for (const CheckpointInfo& found : list_checkpoints(file_system)) {
    if (found.step == step) return found.fault;
  }
  return "not there";
}

const std::string kPieces = "zeroth/pieces-00000.safetensors";

// While a run renames and removes, a listing may pass by what was always there in some form.
class PassingDisk : public FaultyFileSystem {
 public:
  std::vector<DirectoryEntry> list(const std::string& directory) override {
    if (directory.empty() && passes_by && listings++ == 0) return {};
    return FaultyFileSystem::list(directory);
  }
  bool passes_by = false;
  int listings = 0;
};

}  // namespace

TEST_CASE("checkpoints are listed by step, with size, time and attempt") {
  const auto file_system = three_saves();
  file_system->create_directory("step-x");
  write_text(*file_system, "step-16", "");
  const auto found = list_checkpoints(*file_system);
  REQUIRE(found.size() == 3);
  CHECK(found[0].name == "step-4");
  CHECK(found[1].step == 8);
  CHECK(found[2].attempt == SaveAttempt{1, 3});
  CHECK(found[2].written > 1'600'000'000);
  CHECK(found[0].bytes == std::ssize(file_system->bytes_of("step-4/" + kPieces)) +
                              std::ssize(file_system->bytes_of("step-4/zeroth/manifest.json")));
  REQUIRE(newest(found) != nullptr);
  CHECK(newest(found)->name == "step-12");
  CHECK(newest({}) == nullptr);
}

TEST_CASE("a cut, empty or missing file, and a damaged manifest, fall back to the one before") {
  const auto expect = [](auto damage, const std::string& fault) {
    const auto file_system = three_saves();
    damage(*file_system);
    CHECK(fault_of(*file_system, 12).find(fault) != std::string::npos);
    CHECK(load_newest(file_system) == 8);
  };
  expect(
      [](FaultyFileSystem& file_system) { file_system.bytes_of("step-12/" + kPieces).resize(100); },
      "has 100 bytes");
  expect([](FaultyFileSystem& file_system) { file_system.bytes_of("step-12/" + kPieces).clear(); },
         "has 0 bytes");
  expect([](FaultyFileSystem& file_system) { file_system.remove_file("step-12/" + kPieces); },
         "is missing");
  expect(
      [](FaultyFileSystem& file_system) {
        file_system.remove_file("step-12/zeroth/manifest.json");
      },
      "is not a complete checkpoint: it has no zeroth/manifest.json");
  expect(
      [](FaultyFileSystem& file_system) {
        file_system.bytes_of("step-12/zeroth/manifest.json").clear();
      },
      "it is cut short");
  expect(
      [](FaultyFileSystem& file_system) {
        file_system.bytes_of("step-12/zeroth/manifest.json")[40] ^= 1;
      },
      "crc32c mismatch: stored ");
  expect([](FaultyFileSystem& file_system) { remove_tree(file_system, "step-12/zeroth"); },
         "is not a complete checkpoint");
  expect(
      [](FaultyFileSystem& file_system) {
        remove_tree(file_system, "step-12");
        file_system.create_directory("step-12");
      },
      "is not a complete checkpoint");
}

TEST_CASE("a checkpoint under another step's name is none") {
  const auto file_system = three_saves();
  file_system->rename("step-12", "step-13");
  CHECK(fault_of(*file_system, 13) ==
        "/fake/step-13/zeroth/manifest.json: step is 12, the name of its folder says 13");
  CHECK(load_newest(file_system) == 8);
}

TEST_CASE("latest changes nothing, whether it is empty, missing, garbage or wrong") {
  const auto file_system = three_saves();
  CHECK(file_system->bytes_of("latest") == "step-12\n");
  for (const char* const text :
       {"", "garbage\n", "step-99\n", "step-4\n", "../../etc\n", "\xff\xfe"}) {
    file_system->bytes_of("latest") = text;
    CHECK(load_newest(file_system) == 12);
  }
  file_system->remove_file("latest");
  CHECK(load_newest(file_system) == 12);
}

TEST_CASE("a folder that cannot hold checkpoints holds none") {
  FaultyFileSystem file_system;
  CHECK(list_checkpoints(file_system).empty());
}

TEST_CASE("a path leads to an output, to its checkpoints, or to one of them") {
  const TempFolder directory;
  SingleRankGroup one;
  const std::shared_ptr<FileSystem> file_system =
      PosixFileSystem::make(directory / "out/checkpoints");
  Saver saver(file_system, one, {.run_id = "run"});
  save(saver, one, 8, 1);
  for (const char* const path : {"out", "out/checkpoints"}) {
    const CheckpointLocation place = locate(directory / path);
    REQUIRE(place.file_system);
    CHECK(place.file_system->path() == file_system->path());
    CHECK(!place.checkpoint);
  }
  for (const char* const path : {"out/checkpoints/step-8", "out/checkpoints/step-8/",
                                 "out/checkpoint-8", "out/checkpoint-8/"}) {
    const CheckpointLocation place = locate(directory / path);
    REQUIRE(place.file_system);
    CHECK(place.file_system->path() == file_system->path());
    CHECK(place.checkpoint == "step-8");
  }
  fs::rename(directory / "out/checkpoints/step-8", directory / "kept");
  CHECK(locate(directory / "kept").checkpoint == "kept");
  CHECK(!locate(directory / "nothing").file_system);
}

TEST_CASE("folders of weights only are told from checkpoints") {
  const TempFolder directory;
  const auto file_system = PosixFileSystem::make(directory.path());
  for (const char* const name :
       {"step-4", "checkpoint-12", "step-8", "step-6", "other", "checkpoint-x"}) {
    file_system->create_directory(name);
    if (std::string_view(name) != "step-6")
      write_text(*file_system, join_path(name, "config.json"), "{}");
  }
  file_system->create_directory("step-8/zeroth");
  const auto found = list_weights_directories(directory.path());
  REQUIRE(found.size() == 2);
  CHECK((found[0].name == "step-4" && found[0].step == 4));
  CHECK((found[1].name == "checkpoint-12" && found[1].step == 12));
  CHECK(list_weights_directories(directory / "nothing").empty());
  const auto all = list_checkpoints(*file_system);
  REQUIRE(all.size() == 3);
  CHECK(all[0].weights_only);
  CHECK(all[0].fault == file_system->path().string() +
                            "/step-4 holds a model without states: a run cannot resume from it");
  CHECK(!all[1].weights_only);  // step-6 is empty
  CHECK(!all[2].weights_only);  // step-8 has a folder of ours
}

TEST_CASE("verify_beside_run: what a run removes or replaces meanwhile has left") {
  const auto file_system = three_saves();
  const auto found = list_checkpoints(*file_system);
  CHECK(!was_removed(*file_system, found[0]));
  remove_tree(*file_system, "step-4");
  CHECK(was_removed(*file_system, found[0]));
  SingleRankGroup one;
  Saver again(file_system, one, {.run_id = "other", .keep = 0});
  save(again, one, 8, 80);
  CHECK(was_removed(*file_system, found[1]));
  file_system->bytes_of("step-12/" + kPieces).clear();
  CHECK(!was_removed(*file_system, list_checkpoints(*file_system)[1]));  // damaged, and there
}

TEST_CASE("verify_beside_run: where the newest one leaves, the newest one of then is chosen") {
  const auto file_system = three_saves();
  std::vector<std::string> names;
  const auto read = [&](const std::string& name) {
    names.push_back(name);
    if (name != "step-4") {
      remove_tree(*file_system, name);
      (void)read_manifest(*file_system, name);
    }
  };
  with_selected_checkpoint({file_system, std::nullopt}, read);
  CHECK(names == std::vector<std::string>{"step-12", "step-8", "step-4"});
  CHECK(message_of<Error>([&] {
          with_selected_checkpoint({file_system, "step-4"}, [&](const std::string& name) {
            remove_tree(*file_system, name);
            (void)read_manifest(*file_system, name);
          });
        }).starts_with("/fake/step-4 was removed while it was read"));
  CHECK(message_of<Error>([&] {
          with_selected_checkpoint({file_system, std::nullopt}, read);
        }) == "/fake holds no complete checkpoint");
}

TEST_CASE("verify_beside_run: one listing that passes by every checkpoint proves nothing") {
  const auto file_system = std::make_shared<PassingDisk>();
  SingleRankGroup one;
  Saver saver(file_system, one, {.run_id = "run", .keep = 1});
  save(saver, one, 4, 40);
  file_system->passes_by = true;
  const auto found = list_checkpoints(*file_system);
  REQUIRE(found.size() == 1);
  CHECK(found[0].name == "step-4");
  CHECK(found[0].complete());
}

TEST_CASE("what is wrong with a chosen one that stays is told") {
  const auto file_system = three_saves();
  int calls = 0;
  CHECK(message_of<Error>([&] {
          with_selected_checkpoint({file_system, std::nullopt}, [&](const std::string&) {
            ++calls;
            throw Error("no");
          });
        }) == "no");
  CHECK(calls == 1);
}

TEST_CASE("verify_cost: folders in each other are counted to a limit") {
  const TempFolder directory;
  const auto file_system = PosixFileSystem::make(directory.path());
  std::string name = "step-4";
  file_system->create_directory(name);
  for (int i = 0; i < 40; ++i) file_system->create_directory(name += "/d");
  write_text(*file_system, name + "/x", "12345");
  write_text(*file_system, "step-4/d/y", "123");
  const auto found = list_checkpoints(*file_system);
  REQUIRE(found.size() == 1);
  CHECK(found[0].bytes == 3);
}

}  // namespace zeroth::checkpoint::find_test
