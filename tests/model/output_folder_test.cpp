#include "model/output_folder.h"

#include <doctest/doctest.h>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model {

namespace fs = std::filesystem;

TEST_CASE("a folder that is not empty is refused by name, unless it may be overwritten") {
  const TempFolder folder;
  const fs::path target = folder.path() / "out";
  CHECK_NOTHROW(OutputFolder::check(target, false));
  fs::create_directory(target);
  CHECK_NOTHROW(OutputFolder::check(target, false));
  write_text(target / "a", "");
  CHECK(message_of<Error>([&] {
          OutputFolder::check(target, false);
        }).find(target.string() + " is not empty") == 0);
  CHECK_NOTHROW(OutputFolder::check(target, true));
  CHECK(message_of<Error>([&] {
          OutputFolder::check(target / "a", true);
        }).find("is not a folder") != std::string::npos);
}

TEST_CASE("commit puts the files in place, also onto an empty folder and with a trailing slash") {
  const TempFolder folder;
  fs::create_directory(folder.path() / "empty");
  for (const char* name : {"new/", "empty", "deep/er"}) {
    OutputFolder output(folder.path() / name, false);
    write_text(output.path() / "config.json", "1");
    output.commit();
    CHECK(read_text(folder.path() / name / "config.json") == "1");
  }
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 3);
}

TEST_CASE("overwriting replaces a model wholly and keeps other files") {
  const TempFolder folder;
  const fs::path target = folder.path() / "out";
  fs::create_directory(target);
  write_text(target / "config.json", "old");
  write_text(target / "model-00001-of-00002.safetensors", "old");
  write_text(target / "model.safetensors.index.json", "old");
  write_text(target / "metrics.jsonl", "mine");
  OutputFolder output(target, true);
  write_text(output.path() / "config.json", "new");
  write_text(output.path() / "model.safetensors", "new");
  output.commit();
  CHECK(read_text(target / "config.json") == "new");
  CHECK(read_text(target / "metrics.jsonl") == "mine");
  CHECK_FALSE(fs::exists(target / "model.safetensors.index.json"));
  CHECK_FALSE(fs::exists(target / "model-00001-of-00002.safetensors"));
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("files that came meanwhile stay; a model that came meanwhile is not replaced") {
  const TempFolder folder;
  const fs::path target = folder.path() / "out";
  fs::path kept;
  {
    OutputFolder output(target, false);
    write_text(output.path() / "config.json", "ours");
    fs::create_directory(target);
    write_text(target / "log", "x");
    output.commit();
    CHECK(read_text(target / "log") == "x");
    CHECK(read_text(target / "config.json") == "ours");
  }
  fs::remove_all(target);
  {
    OutputFolder output(target, false);
    kept = output.path();
    write_text(output.path() / "config.json", "ours");
    fs::create_directory(target);
    write_text(target / "config.json", "theirs");
    CHECK(message_of<Error>([&] { output.commit(); }).find(kept.string()) != std::string::npos);
  }
  CHECK(read_text(target / "config.json") == "theirs");
  CHECK(read_text(kept / "config.json") == "ours");
}

TEST_CASE("a place that cannot be written is named with the reason") {
  const std::string said = message_of<Error>([] { OutputFolder output("/proc/no/where", false); });
  CHECK(said.find("no folder can be made beside /proc/no/where: ") == 0);
}

}  // namespace zeroth::model
