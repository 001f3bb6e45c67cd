// A save: ranks write into a temporary directory, and one of them commits it as a checkpoint.
//
//   Saver saver(file_system, ranks, {.run_id = id});   // once in a run
//   Save save = saver.begin(step, bytes_of_this_rank);
//   RankManifest mine;
//   save.run_phase("writing", [&] {
//     ChunkFile file = save.chunk_file(chunks);
//     for (...) file.write(index, bytes);
//     mine.files.push_back(file.finish(save.chunk_file_name()));
//   });
//   const CommitResult done = save.commit(mine, manifest);
//
// A kill at any moment leaves the earlier checkpoints, with or without the new one. A failure on
// one rank throws the same Error on all ranks, and nothing is committed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/chunk_file.h"
#include "checkpoint/file_system.h"
#include "checkpoint/manifest.h"
#include "checkpoint/names.h"
#include "checkpoint/owner.h"
#include "checkpoint/rank_group.h"
#include "checkpoint/rank_manifest.h"

namespace zeroth::checkpoint {

struct SaverOptions {
  std::string run_id;
  int64_t keep = 2;  // number of newest checkpoints to keep; 0: all
  // The checkpoint that the run resumes from. Each later save has the previous one as its parent.
  std::optional<Parent> parent = {};
  // Shown to other processes that find the directory in use.
  std::string description = describe_this_process();
};

struct CommitResult {
  std::string name;  // "step-8", in the file system
  uint32_t crc = 0;  // of its manifest; the next checkpoint stores it as its parent's
  // Failures after the commit, which remains valid: `latest`, old checkpoints that were not
  // removed.
  std::vector<std::string> warnings = {};
};

class Save;

// Saver makes the saves of one run in one directory. Ranks call it collectively, one save at a
// time.
class Saver {
 public:
  // Takes ownership of the directory, which must exist, and removes what dead runs left in it. Each
  // rank passes a FileSystem of its own for the same directory. Collective.
  Saver(std::shared_ptr<FileSystem> file_system, RankGroup& ranks, SaverOptions options);

  int64_t generation() const { return generation_; }
  // Sets how many of the newest checkpoints stay (0: all) and which steps stay whatever their age,
  // for example the best one.
  void keep(int64_t newest, std::set<int64_t> steps);
  // Removes all other checkpoints, as each commit does, except `steps`. Called on rank 0 only.
  void rotate_checkpoints(std::set<int64_t> steps = {}) const;

  // Starts a save. `bytes` is the total that this rank will write. Throws an Error before anything
  // is written if the bytes do not fit. Collective.
  Save begin(int64_t step, int64_t bytes);

 private:
  friend class Save;
  void publish(const Save& save, bool& committed) const;
  std::vector<std::string> finish_commit(const Save& save) const;
  bool is_committer() const { return ranks_.rank() == 0; }

  std::shared_ptr<FileSystem> file_system_;
  RankGroup& ranks_;
  SaverOptions options_;
  std::optional<Owner> owner_;  // on rank 0 only
  int64_t generation_ = 0;
  int64_t attempts_ = 0;
  std::set<int64_t> kept_steps_;
};

// A Save may move to another thread. Its destructor removes the directory if it is not committed.
class Save {
 public:
  ~Save();
  Save(Save&&) noexcept;

  int64_t step() const { return step_; }
  // Directory to write to, relative to the file system; path() is for callers that write by path.
  const std::string& directory() const { return directory_; }
  std::filesystem::path path() const;
  FileSystem& file_system() const;
  // Name of this rank's chunk file, relative to directory(); chunk_file() creates it.
  std::string chunk_file_name() const;
  ChunkFile chunk_file(std::vector<TensorChunk> chunks) const;

  // Runs a phase of the save. If `action` throws on any rank, all ranks throw an Error. Collective.
  template <typename Action>
  void run_phase(std::string_view what, Action action) const {
    run_on_all_ranks(saver_->ranks_, phase_name(what), action);
  }

  // Commits the save, with rank 0's `manifest`, whose step, run, attempt, time, parent and files
  // are filled in here. All ranks must pass the same must_equal. `expected`, if rank 0 passes it,
  // lists all states that must exist. Files in directory() that no rank reports are read and
  // listed, too. Collective.
  CommitResult commit(const RankManifest& mine, Manifest manifest,
                      const std::vector<StoredState>& expected = {});

 private:
  friend class Saver;
  Save(Saver& saver, int64_t step, const SaveAttempt& attempt);
  std::string phase_name(std::string_view what) const;
  std::string old_name() const;  // of the replaced checkpoint, if replacing takes two steps
  // Returns the CRC of the manifest.
  uint32_t write_manifest(const std::vector<std::string>& reports, Manifest manifest,
                          const std::vector<StoredState>& expected) const;

  Saver* saver_;
  int64_t step_;
  SaveAttempt attempt_;
  std::string directory_;
  bool removes_on_exit_ = true;  // whether the destructor removes directory_
};

}  // namespace zeroth::checkpoint
