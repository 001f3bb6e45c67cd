#include "launcher/commands/atomic_directory.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::atomic_directory_test {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

Names names_in(const fs::path& directory) {
  Names names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

void put(AtomicDirectory& directory, const std::string& name, const std::string& text) {
  write_text(directory.file_system(), directory.file_path(name), text);
}

std::string refused(const fs::path& target, bool overwrite) {
  return message_of<Error>([&] { AtomicDirectory(target, overwrite); });
}

}  // namespace

TEST_CASE("a folder appears whole, or not at all") {
  const TempFolder around;
  for (const char* name : {"a/b/new", "empty"}) {
    fs::create_directories(around / "empty");
    {
      AtomicDirectory directory(around / name, false);
      put(directory, "config.json", "{}");
      CHECK((!fs::exists(around / name) || fs::is_empty(around / name)));
    }
    CHECK((!fs::exists(around / name) || fs::is_empty(around / name)));
    AtomicDirectory directory(around / name, false);
    put(directory, "config.json", "{}");
    directory.commit();
    CHECK(names_in(around / name) == Names{"config.json"});
    CHECK(names_in((around / name).parent_path()).size() == (name == Names{"empty"}[0] ? 2 : 1));
  }
}

TEST_CASE("a model is replaced only where that is asked for, and nothing else ever is") {
  const TempFolder around;
  const fs::path target = around / "hf";
  fs::create_directory(target);
  write_text(target / "config.json", "old");
  write_text(target / "model-00001-of-00002.safetensors", "old");
  CHECK(refused(target, false) ==
        target.string() +
            " is not empty: choose another folder, or overwrite (--overwrite) to replace the model "
            "in it");
  {
    AtomicDirectory directory(target, true);
    put(directory, "config.json", "new");
    CHECK(read_text(target / "config.json") == "old");
    directory.commit();
  }
  CHECK(names_in(target) == Names{"config.json"});
  CHECK(read_text(target / "config.json") == "new");
  CHECK(names_in(around.path()) == Names{"hf"});
  write_text(target / "notes.txt", "mine");
  CHECK(refused(target, true) == target.string() +
                                     " contains notes.txt, which is not a model file and would be "
                                     "lost: choose another folder");
  fs::remove(target / "notes.txt");
  fs::create_directory(target / "checkpoints");
  CHECK(refused(target, true).find("contains checkpoints, which") != std::string::npos);
  CHECK(names_in(around.path()) == Names{"hf"});
  write_text(around / "file", "");
  CHECK(refused(around / "file", true) == (around / "file").string() + " is not a folder");
  CHECK(refused("/", true) == "/: no folder can be created there");
}

TEST_CASE("what somebody puts in the folder's place meanwhile stays") {
  const TempFolder around;
  AtomicDirectory directory(around / "hf", false);
  put(directory, "config.json", "new");
  fs::create_directory(around / "hf");
  write_text(around / "hf/config.json", "theirs");
  CHECK(message_of<Error>([&] { directory.commit(); }).find("is not empty") != std::string::npos);
  CHECK(read_text(around / "hf/config.json") == "theirs");
}

TEST_CASE("what a kill has left goes, unless somebody writes it or it holds more than a model") {
  const TempFolder around;
  for (const char* name : {"hf.zeroth-tmp-aaaaaa", "hf.zeroth-tmp-bbbbbb", "hf.zeroth-tmp-cccccc",
                           "hf.zeroth-tmp-dd", "other.zeroth-tmp-aaaaaa"}) {
    fs::create_directory(around / name);
    write_text(around / name / "model.safetensors", "half");
  }
  write_text(around / "hf.zeroth-tmp-bbbbbb/notes.txt", "mine");
  const FileDescriptor written(
      ::open((around / "hf.zeroth-tmp-cccccc").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(::flock(written.get(), LOCK_EX | LOCK_NB) == 0);
  { const AtomicDirectory directory(around / "hf", false); }
  CHECK(names_in(around.path()) == Names{"hf.zeroth-tmp-bbbbbb", "hf.zeroth-tmp-cccccc",
                                         "hf.zeroth-tmp-dd", "other.zeroth-tmp-aaaaaa"});
}

TEST_CASE("a link at the folder's place leads to where it is made") {
  const TempFolder around;
  fs::create_directory(around / "disk");
  fs::create_symlink(around / "disk", around / "hf");
  AtomicDirectory directory(around / "hf/", false);
  put(directory, "config.json", "{}");
  directory.commit();
  CHECK(fs::is_symlink(around / "hf"));
  CHECK(read_text(around / "disk/config.json") == "{}");
}

}  // namespace zeroth::launcher::atomic_directory_test
