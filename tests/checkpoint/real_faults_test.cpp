// What a real disk does to a save: it is full, read-only, or goes away.
#include <doctest/doctest.h>

#include "checkpoint/posix_file_system.h"
#include "tests/checkpoint/read_whole.h"
#include "tests/checkpoint/small_run.h"
#include "tests/offload/mount.h"
#include "tests/support/temp_folder.h"

namespace zeroth::checkpoint::real_faults_test {
namespace {

namespace fs = std::filesystem;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

// Saves a state of so many bytes, of which `told` are said to be needed.
std::string save_bytes(const std::shared_ptr<FileSystem>& file_system, int64_t step, int64_t bytes,
                       int64_t reported) {
  SingleRankGroup one;
  return message_of<Error>([&] {
    Saver saver(file_system, one, {.run_id = "run"});
    Save attempt = saver.begin(step, reported);
    RankManifest mine;
    attempt.run_phase("writing", [&] {
      ChunkFile file = attempt.chunk_file({TensorChunk::full("w", "m", "U8", {bytes})});
      file.write(0, std::vector<std::byte>(static_cast<size_t>(bytes)));
      mine.files.push_back(file.finish(attempt.chunk_file_name()));
    });
    attempt.commit(mine, {.counters = {{"salt", int64_t{1}}}});
  });
}

std::vector<std::string> steps_of(FileSystem& file_system) {
  std::vector<std::string> names;
  for (const CheckpointInfo& found : list_checkpoints(file_system)) {
    if (found.complete()) names.push_back(found.name);
  }
  return names;
}

}  // namespace

TEST_CASE("a full disk is told before it is written to, and leaves what is there") {
  const TempFolder directory;
  const offload::Mount mount(directory.path(), "tmpfs", "size=16m");
  if (!mount) return;
  constexpr int64_t kMib = int64_t{1} << 20;
  const std::shared_ptr<FileSystem> file_system = PosixFileSystem::make(directory / "c");
  CHECK(save_bytes(file_system, 1, 6 * kMib, 6 * kMib) == "no exception");
  const std::string reported = save_bytes(file_system, 2, 8 * kMib, 8 * kMib);
  CHECK(contains(reported, "saving step 2: preparing failed: rank 0: "));
  CHECK(contains(reported, ": a checkpoint takes 12.0 MiB and "));
  const std::string full = save_bytes(file_system, 2, 11 * kMib, 0);
  CHECK(contains(full, "saving step 2: writing failed: rank 0: "));
  CHECK(contains(full, "zeroth/pieces-00000.safetensors: reserving 1153"));
  CHECK(contains(full, "failed: No space left on device; "));
  CHECK(contains(full, " bytes are free there"));
  CHECK(steps_of(*file_system) == std::vector<std::string>{"step-1"});
  CHECK(temporary_names(*file_system).empty());
  CHECK(save_bytes(file_system, 2, 2 * kMib, 2 * kMib) == "no exception");
}

TEST_CASE("a disk that became read-only is an error, and its checkpoints are read all the same") {
  const TempFolder directory;
  const offload::Mount mount(directory.path(), "tmpfs", "size=16m");
  if (!mount) return;
  const std::shared_ptr<FileSystem> file_system = PosixFileSystem::make(directory / "c");
  CHECK(save_bytes(file_system, 1, 1000, 1000) == "no exception");
  REQUIRE(::mount("test", directory.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0);
  CHECK(contains(save_bytes(file_system, 2, 1000, 1000), "failed: Read-only file system"));
  CHECK(steps_of(*file_system) == std::vector<std::string>{"step-1"});
  CheckpointReader reader = CheckpointReader::open(directory / "c/step-1");
  CHECK(read_whole(reader, "w", "m").size() == 1000);
}

TEST_CASE("a folder that vanishes while a checkpoint is written is an error with its path") {
  const TempFolder directory;
  const std::shared_ptr<FileSystem> file_system = PosixFileSystem::make(directory / "c");
  SingleRankGroup one;
  Saver saver(file_system, one, {.run_id = "run"});
  const std::string said = message_of<Error>([&] {
    Save attempt = saver.begin(8, 1000);
    fs::remove_all(directory / "c");
    attempt.run_phase("writing",
                      [&] { (void)attempt.chunk_file({TensorChunk::full("w", "m", "U8", {8})}); });
  });
  CHECK(contains(said, "saving step 8: writing failed: rank 0: " +
                           (directory / "c/.tmp-step-8-1.1").string()));
  CHECK(contains(said, "No such file or directory"));
  CHECK(contains(message_of<Error>([&] { (void)saver.begin(9, 1000); }), "has lost .owner-1"));
}

}  // namespace zeroth::checkpoint::real_faults_test
