#include "checkpoint/find.h"

#include <doctest/doctest.h>

#include "checkpoint/real_disk.h"
#include "tests/checkpoint/fake_disk.h"
#include "tests/checkpoint/small_run.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string fault_of(Disk& disk, int64_t step) {
  for (const Found& found : list_checkpoints(disk)) {
    if (found.step == step) return found.fault;
  }
  return "not there";
}

const std::string kPieces = "zeroth/pieces-00000.safetensors";

}  // namespace

TEST_CASE("checkpoints are listed by step, with size, time and attempt") {
  const auto disk = three_saves();
  disk->make_folder("step-x");
  write_text(*disk, "step-16", "");
  const auto found = list_checkpoints(*disk);
  REQUIRE(found.size() == 3);
  CHECK(found[0].name == "step-4");
  CHECK(found[1].step == 8);
  CHECK(found[2].attempt == Attempt{1, 3});
  CHECK(found[2].written > 1'600'000'000);
  CHECK(found[0].bytes == std::ssize(disk->bytes_of("step-4/" + kPieces)) +
                              std::ssize(disk->bytes_of("step-4/zeroth/manifest.json")));
  REQUIRE(newest(found) != nullptr);
  CHECK(newest(found)->name == "step-12");
  CHECK(newest({}) == nullptr);
}

TEST_CASE("a cut, empty or missing file, and a damaged manifest, fall back to the one before") {
  const auto expect = [](auto damage, const std::string& fault) {
    const auto disk = three_saves();
    damage(*disk);
    CHECK(fault_of(*disk, 12).find(fault) != std::string::npos);
    CHECK(load_newest(disk) == 8);
  };
  expect([](FakeDisk& disk) { disk.bytes_of("step-12/" + kPieces).resize(100); }, "has 100 bytes");
  expect([](FakeDisk& disk) { disk.bytes_of("step-12/" + kPieces).clear(); }, "has 0 bytes");
  expect([](FakeDisk& disk) { disk.remove_file("step-12/" + kPieces); }, "is missing");
  expect([](FakeDisk& disk) { disk.remove_file("step-12/zeroth/manifest.json"); },
         "is no complete checkpoint: it has no zeroth/manifest.json");
  expect([](FakeDisk& disk) { disk.bytes_of("step-12/zeroth/manifest.json").clear(); },
         "it is cut short");
  expect([](FakeDisk& disk) { disk.bytes_of("step-12/zeroth/manifest.json")[40] ^= 1; },
         "its crc32c is");
  expect([](FakeDisk& disk) { remove_tree(disk, "step-12/zeroth"); }, "no complete checkpoint");
  expect(
      [](FakeDisk& disk) {
        remove_tree(disk, "step-12");
        disk.make_folder("step-12");
      },
      "no complete checkpoint");
}

TEST_CASE("a checkpoint under another step's name is none") {
  const auto disk = three_saves();
  disk->rename("step-12", "step-13");
  CHECK(fault_of(*disk, 13) ==
        "/fake/step-13/zeroth/manifest.json: step is 12, the name of its folder says 13");
  CHECK(load_newest(disk) == 8);
}

TEST_CASE("latest changes nothing, whether it is empty, missing, garbage or wrong") {
  const auto disk = three_saves();
  CHECK(latest_hint(*disk) == 12);
  for (const char* const text :
       {"", "garbage\n", "step-99\n", "step-4\n", "../../etc\n", "\xff\xfe"}) {
    disk->bytes_of("latest") = text;
    CHECK(load_newest(disk) == 12);
  }
  CHECK(!latest_hint(*disk));
  disk->remove_file("latest");
  CHECK(!latest_hint(*disk));
  CHECK(load_newest(disk) == 12);
}

TEST_CASE("a folder that cannot hold checkpoints holds none") {
  FakeDisk disk;
  CHECK(list_checkpoints(disk).empty());
}

TEST_CASE("a path leads to an output, to its checkpoints, or to one of them") {
  const TempFolder folder;
  OneRank one;
  const std::shared_ptr<Disk> disk = RealDisk::make(folder / "out/checkpoints");
  Saver saver(disk, one, {.run_id = "run"});
  save(saver, one, 8, 1);
  for (const char* const path : {"out", "out/checkpoints"}) {
    const Place place = locate(folder / path);
    REQUIRE(place.disk);
    CHECK(place.disk->path() == disk->path());
    CHECK(!place.one);
  }
  for (const char* const path : {"out/checkpoints/step-8", "out/checkpoints/step-8/",
                                 "out/checkpoint-8", "out/checkpoint-8/"}) {
    const Place place = locate(folder / path);
    REQUIRE(place.disk);
    CHECK(place.disk->path() == disk->path());
    CHECK(place.one == "step-8");
  }
  fs::rename(folder / "out/checkpoints/step-8", folder / "kept");
  CHECK(locate(folder / "kept").one == "kept");
  CHECK(!locate(folder / "nothing").disk);
}

TEST_CASE("folders of weights only are told from checkpoints") {
  const TempFolder folder;
  const auto disk = RealDisk::make(folder.path());
  for (const char* const name :
       {"step-4", "checkpoint-12", "step-8", "step-6", "other", "checkpoint-x"}) {
    disk->make_folder(name);
    if (std::string_view(name) != "step-6") write_text(*disk, joined(name, "config.json"), "{}");
  }
  disk->make_folder("step-8/zeroth");
  const auto found = list_weights(folder.path());
  REQUIRE(found.size() == 2);
  CHECK((found[0].name == "step-4" && found[0].step == 4));
  CHECK((found[1].name == "checkpoint-12" && found[1].step == 12));
  CHECK(list_weights(folder / "nothing").empty());
  const auto all = list_checkpoints(*disk);
  REQUIRE(all.size() == 3);
  CHECK(all[0].weights_only);
  CHECK(all[0].fault ==
        disk->path().string() + "/step-4 holds a model without states: no run goes on from it");
  CHECK(!all[1].weights_only);  // step-6 is empty
  CHECK(!all[2].weights_only);  // step-8 has a folder of ours
}

TEST_CASE("verify_beside_run: what a run removes or replaces meanwhile has left") {
  const auto disk = three_saves();
  const auto found = list_checkpoints(*disk);
  CHECK(!has_left(*disk, found[0]));
  remove_tree(*disk, "step-4");
  CHECK(has_left(*disk, found[0]));
  OneRank one;
  Saver again(disk, one, {.run_id = "other", .keep = 0});
  save(again, one, 8, 80);
  CHECK(has_left(*disk, found[1]));
  disk->bytes_of("step-12/" + kPieces).clear();
  CHECK(!has_left(*disk, list_checkpoints(*disk)[1]));  // damaged, and there
}

TEST_CASE("verify_beside_run: where the newest one leaves, the newest one of then is chosen") {
  const auto disk = three_saves();
  std::vector<std::string> names;
  const auto read = [&](const std::string& name) {
    names.push_back(name);
    if (name != "step-4") {
      remove_tree(*disk, name);
      (void)read_manifest(*disk, name);
    }
  };
  with_chosen({disk, std::nullopt}, read);
  CHECK(names == std::vector<std::string>{"step-12", "step-8", "step-4"});
  CHECK(message_of<Error>([&] {
          with_chosen({disk, "step-4"}, [&](const std::string& name) {
            remove_tree(*disk, name);
            (void)read_manifest(*disk, name);
          });
        }).starts_with("/fake/step-4 was removed while it was read"));
  CHECK(message_of<Error>([&] {
          with_chosen({disk, std::nullopt}, read);
        }) == "/fake holds no complete checkpoint");
}

TEST_CASE("what is wrong with a chosen one that stays is told") {
  const auto disk = three_saves();
  int calls = 0;
  CHECK(message_of<Error>([&] {
          with_chosen({disk, std::nullopt}, [&](const std::string&) {
            ++calls;
            throw Error("no");
          });
        }) == "no");
  CHECK(calls == 1);
}

TEST_CASE("verify_cost: folders in each other are counted to a limit") {
  const TempFolder folder;
  const auto disk = RealDisk::make(folder.path());
  std::string name = "step-4";
  disk->make_folder(name);
  for (int i = 0; i < 40; ++i) disk->make_folder(name += "/d");
  write_text(*disk, name + "/x", "12345");
  write_text(*disk, "step-4/d/y", "123");
  const auto found = list_checkpoints(*disk);
  REQUIRE(found.size() == 1);
  CHECK(found[0].bytes == 3);
}

}  // namespace zeroth::checkpoint
