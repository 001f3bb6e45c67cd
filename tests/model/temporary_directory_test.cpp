#include "model/hf/temporary_directory.h"

#include <doctest/doctest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <set>
#include <thread>

#include "model/hf/output_directory.h"
#include "model/hf/safetensors.h"
#include "model/hf/safetensors_writer.h"
#include "tests/model/materialize.h"
#include "tests/support/child_process.h"
#include "tests/support/second_user.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::temporary_directory_test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A running saving_program.
class Saving {
 public:
  explicit Saving(const fs::path& output) {
    REQUIRE(::pipe(pipe_) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(pipe_[1], STDOUT_FILENO);
      const std::string program = ZEROTH_BIN_DIR "/tests/saving_program";
      ::execl(program.c_str(), program.c_str(), fixture("llama").c_str(), output.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(pipe_[1]);
  }
  ~Saving() {
    kill();
    ::close(pipe_[0]);
  }
  void wait_for_a_model() {
    char byte = 0;
    REQUIRE(::read(pipe_[0], &byte, 1) == 1);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  int pipe_[2] = {};
  pid_t pid_ = -1;
};

// The one value that all tensors of a whole model hold.
double value_of(const fs::path& output) {
  const SafetensorsDirectory files(output);
  std::set<double> values;
  for (const auto& [name, entry] : files.entries()) {
    for (const float value :
         std::span(reinterpret_cast<const float*>(entry.file->bytes(*entry.tensor).data()),
                   entry.file->bytes(*entry.tensor).size() / sizeof(float))) {
      values.insert(value);
    }
  }
  CHECK(files.entries().size() > 10);
  REQUIRE(values.size() == 1);
  return *values.begin();
}

// An empty file system of 1 MiB, where one can be had.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& place)
      : place_(place), mounted_(::mount("tmpfs", place.c_str(), "tmpfs", 0, "size=1m") == 0) {}
  ~SmallDisk() {
    if (mounted_) ::umount2(place_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  fs::path place_;
  bool mounted_;
};

size_t entries(const fs::path& directory) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(directory), {}));
}

void make_folder(const fs::path& directory, std::initializer_list<const char*> files) {
  fs::create_directory(directory);
  for (const char* file : files) write_text(directory / file, directory.filename().string());
}

}  // namespace

TEST_CASE("kill -9 at any moment of saving leaves the old model or the new one, whole") {
  const TempFolder directory;
  const fs::path output = directory.path() / "out";
  make_folder(output, {"notes.txt"});
  std::chrono::duration<double> one{};
  constexpr int kMoments = 14;
  for (int moment = 0; moment < kMoments; ++moment) {
    Saving saving(output);
    saving.wait_for_a_model();
    const auto start = Clock::now();
    saving.wait_for_a_model();
    if (moment == 0) one = Clock::now() - start;
    std::this_thread::sleep_for(one * moment * 1.2 / kMoments);
    saving.kill();
    CHECK(value_of(output) >= 2);
    OutputDirectory::cleanup_leftovers(output);
    CHECK(value_of(output) >= 2);
    CHECK(read_text(output / "notes.txt") == "out");
    CHECK(entries(directory.path()) == 1);
  }
}

TEST_CASE("a new folder has the umask's mode, and one that replaces another keeps its mode") {
  const auto result = in_child([] {
    const TempFolder directory;
    ::umask(027);
    const auto mode_of = [](const fs::path& path) {
      struct stat status {};
      return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
    };
    const auto out = directory / "out";
    if (mode_of(TemporaryDirectory(out).path()) != 0750) return 1;
    fs::create_directory(out);
    for (const mode_t mode : {0700, 0755, 02770}) {
      if (::chmod(out.c_str(), mode) != 0 || mode_of(TemporaryDirectory(out).path()) != mode)
        return 2;
    }
    const gid_t other = 12345;
    if (::chown(out.c_str(), static_cast<uid_t>(-1), other) != 0) return 0;  // not root
    struct stat status {};
    const TemporaryDirectory temporary(out);
    return ::stat(temporary.path().c_str(), &status) == 0 && status.st_gid == other ? 0 : 3;
  });
  CHECK(result.status == 0);
}

TEST_CASE("what a kill left goes; what somebody writes, and what is the user's, stays") {
  const TempFolder directory;
  const fs::path out = directory.path() / "out";
  make_folder(out, {"config.json"});
  make_folder(directory.path() / "out.zeroth-tmp-abc123", {"config.json", "notes.txt"});
  make_folder(directory.path() / "out.zeroth-del-abc123", {"config.json", "gone.txt"});
  make_folder(directory.path() / "out.zeroth-tmp-backups", {"config.json"});
  make_folder(directory.path() / "other.zeroth-tmp-abc123", {"config.json"});
  const TemporaryDirectory written(out);
  OutputDirectory::cleanup_leftovers(out);
  CHECK(fs::exists(written.path()));
  CHECK(read_text(out / "config.json") == "out");
  CHECK(read_text(out / "notes.txt") == "out.zeroth-tmp-abc123");
  CHECK_FALSE(fs::exists(out / "gone.txt"));
  CHECK(fs::exists(directory.path() / "out.zeroth-tmp-backups"));
  CHECK(fs::exists(directory.path() / "other.zeroth-tmp-abc123"));
  CHECK(entries(directory.path()) == 4);
}

TEST_CASE("where a kill came between two renames the old model gets its name back") {
  const TempFolder directory;
  make_folder(directory.path() / "out.zeroth-old-abc123", {"config.json", "notes.txt"});
  make_folder(directory.path() / "out.zeroth-tmp-abc123", {"config.json"});
  cleanup_leftovers(directory.path(), [](const std::string& name) { return name == "out"; });
  CHECK(read_text(directory.path() / "out/config.json") == "out.zeroth-old-abc123");
  CHECK(fs::exists(directory.path() / "out/notes.txt"));
  CHECK(entries(directory.path()) == 1);
}

TEST_CASE("a leftover that holds a user's file stays where its target is gone") {
  const TempFolder directory;
  make_folder(directory.path() / "out.zeroth-tmp-abc123", {"config.json", "notes.txt"});
  OutputDirectory::cleanup_leftovers(directory.path() / "out");
  CHECK(fs::exists(directory.path() / "out.zeroth-tmp-abc123/notes.txt"));
  CHECK_NOTHROW(cleanup_leftovers(directory.path() / "nowhere", [](const auto&) { return true; }));
}

TEST_CASE("a link in the place of a leftover moves and removes nothing of where it leads") {
  for (const char* mark : {"tmp", "old", "del"}) {
    for (const bool has_target : {true, false}) {
      CAPTURE(mark);
      CAPTURE(has_target);
      const TempFolder directory;
      make_folder(directory.path() / "victim", {"config.json", "diary.txt"});
      if (has_target) make_folder(directory.path() / "out", {"config.json"});
      const fs::path link = directory.path() / fmt::format("out.zeroth-{}-abcdef", mark);
      fs::create_directory_symlink(directory.path() / "victim", link);
      OutputDirectory::cleanup_leftovers(directory.path() / "out");
      CHECK(fs::is_symlink(link));
      CHECK(entries(directory.path() / "victim") == 2);
      CHECK(fs::exists(directory.path() / "out") == has_target);
      CHECK_FALSE(fs::exists(directory.path() / "out/diary.txt"));
    }
  }
}

TEST_CASE("what another user has put beside an output in a shared folder is not taken for ours" *
          in_neighbours) {
  const StickyFolder shared;
  make_folder(shared.own("victim"), {"diary.txt"});
  const fs::path victim = shared.own("victim");
  const bool planted = as_nobody([&] {
    make_folder(shared / "new.zeroth-old-abcdef", {"config.json"});
    make_folder(shared / "out.zeroth-tmp-abcdef", {"config.json", "evil.txt"});
    return ::symlink(victim.c_str(), (shared / "out.zeroth-tmp-aaaaaa").c_str()) == 0 &&
           ::symlink(victim.c_str(), (shared / "out.zeroth-old-aaaaaa").c_str()) == 0;
  });
  if (!planted) return;
  make_folder(shared / "out", {"config.json"});
  OutputDirectory::cleanup_leftovers(shared / "out");
  OutputDirectory::cleanup_leftovers(shared / "new");
  CHECK(entries(shared / "out") == 1);
  CHECK(entries(victim) == 1);
  CHECK_FALSE(fs::exists(shared / "new"));
  CHECK(entries(shared / "out.zeroth-tmp-abcdef") == 2);
  OutputDirectory output(shared / "out", true);
  write_text(output.path() / "config.json", "ours");
  output.commit();
  CHECK(read_text(shared / "out/config.json") == "ours");
  CHECK(entries(victim) == 1);
}

TEST_CASE("two folders change places, and one is removed whole") {
  const TempFolder directory;
  make_folder(directory.path() / "a", {"a.txt"});
  make_folder(directory.path() / "b", {"b.txt"});
  const fs::path old = exchange(directory.path() / "a", directory.path() / "b");
  CHECK(fs::exists(directory.path() / "b/a.txt"));
  CHECK(fs::exists(old / "b.txt"));
  remove_directory(directory.path() / "b");
  remove_directory(old);
  CHECK(entries(directory.path()) == 0);
}

TEST_CASE("a link in the place of a folder that shall go removes nothing") {
  const TempFolder directory;
  make_folder(directory.path() / "victim", {"diary.txt"});
  fs::create_directory_symlink("victim", directory.path() / "step-2");
  CHECK_THROWS_AS(remove_directory(directory.path() / "step-2"), Error);
  CHECK(entries(directory.path() / "victim") == 1);
  CHECK(entries(directory.path()) == 2);
}

TEST_CASE("a full disk leaves the former model as it was, and nothing beside it") {
  const TempFolder directory;
  const SmallDisk disk(directory.path());
  if (!disk.mounted()) {
    MESSAGE("skipped: no tmpfs can be mounted here");
    return;
  }
  const fs::path output = directory.path() / "out";
  const auto save = [&](int64_t elements) {
    OutputDirectory target(output, true);
    SafetensorsWriter writer(target.path() / "model.safetensors", torch::kFloat32,
                             {{"a", {elements}}});
    writer.write("a", torch::ones({elements}));
    writer.finish();
    target.commit();
  };
  save(100'000);
  const std::string said = message_of<Error>([&] { save(200'000); });
  CHECK_MESSAGE(said.find("model.safetensors: reserving 800") != std::string::npos, said);
  CHECK(said.find(" bytes failed: No space left on device; ") != std::string::npos);
  CHECK(said.ends_with(" bytes are free there"));
  CHECK(load_tensors((output / "model.safetensors").string())["a"].numel() == 100'000);
  CHECK(entries(directory.path()) == 1);
}

}  // namespace zeroth::model::temporary_directory_test
