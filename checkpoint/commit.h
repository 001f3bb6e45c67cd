// A save: ranks write into a folder of its own, one of them makes it a checkpoint.
//
//   Saver saver(disk, ranks, {.run_id = id});          // once in a run
//   Save save = saver.begin(step, bytes_of_this_rank);
//   RankManifest mine;
//   save.run_phase("writing", [&] {
//     ChunkFile file = save.chunk_file(chunks);
//     for (...) file.write(index, bytes);
//     mine.files.push_back(file.finish(save.chunk_file_name()));
//   });
//   const CommitResult done = save.commit(mine, manifest);
//
// A kill at any moment leaves the checkpoints of before, or these and the new one. Whatever fails
// on one rank is the same Error on all, and nothing is committed.
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
#include "checkpoint/retention.h"

namespace zeroth::checkpoint {

struct SaverOptions {
  std::string run_id;
  int64_t keep = 2;  // newest ones; 0: all
  // What the run goes on from. Later saves have the one before as parent.
  std::optional<Parent> parent = {};
  std::string description = describe_this_process();  // for whoever finds the folder taken
};

struct CommitResult {
  std::string name;  // "step-8", on the disk
  uint32_t crc = 0;  // of its manifest: what the next one calls its parent
  // What went wrong behind the commit, which stands: `latest`, old ones that could not be removed.
  std::vector<std::string> warnings = {};
};

class Save;

// Saves of one run into one folder. The calls of ranks are collective, one save at a time.
class Saver {
 public:
  // Each rank has a disk of its own for the same folder, which is there. Takes the folder over, and
  // clears away what dead runs left in it. Collective.
  Saver(std::shared_ptr<FileSystem> file_system, RankGroup& ranks, SaverOptions options);

  int64_t generation() const { return generation_; }
  // From now on so many of the newest stay (0: all), and these steps whatever their age, the best
  // one's for instance.
  void keep(int64_t newest, std::set<int64_t> steps);
  // Removes the others, as each commit does, but for `steps`. For rank 0 alone.
  void remove_old(std::set<int64_t> steps = {}) const;

  // `bytes`: of all that this rank will write. Throws an Error where they do not fit: then nothing
  // was written. Collective.
  Save begin(int64_t step, int64_t bytes);

 private:
  friend class Save;
  void publish(const Save& save, bool& committed) const;
  std::vector<std::string> clean_up(const Save& save) const;
  bool is_committer() const { return ranks_.rank() == 0; }

  std::shared_ptr<FileSystem> file_system_;
  RankGroup& ranks_;
  SaverOptions options_;
  std::optional<Owner> owner_;  // rank 0
  int64_t generation_ = 0;
  int64_t attempts_ = 0;
  std::set<int64_t> kept_steps_;
};

// May move to another thread. What is not committed goes away with it.
class Save {
 public:
  ~Save();
  Save(Save&&) noexcept;

  int64_t step() const { return step_; }
  // Where to write: relative to the disk, and for those who write by a path.
  const std::string& directory() const { return directory_; }
  std::filesystem::path path() const;
  FileSystem& file_system() const;
  // Of this rank: relative to directory(), and the file.
  std::string chunk_file_name() const;
  ChunkFile chunk_file(std::vector<TensorChunk> chunks) const;

  // A part of the save: what `action` throws on any rank becomes an Error on all. Collective.
  template <typename Action>
  void run_phase(std::string_view what, Action action) const {
    run_on_all_ranks(saver_->ranks_, phase_name(what), action);
  }

  // `facts` of rank 0 is what the manifest will say; step, run, attempt, time, parent and files are
  // filled in. All ranks must have the same must_equal. `expected`, where it is given on rank 0:
  // all states that there must be. Files in directory() that no rank reports are read and listed,
  // too. Collective.
  CommitResult commit(const RankManifest& mine, Manifest facts,
                      const std::vector<ExpectedState>& expected = {});

 private:
  friend class Saver;
  Save(Saver& saver, int64_t step, const SaveAttempt& attempt);
  std::string phase_name(std::string_view what) const;
  std::string old_name() const;  // of what it replaces, where that takes two steps
  // Returns its CRC.
  uint32_t write_manifest(const std::vector<std::string>& reports, Manifest facts,
                          const std::vector<ExpectedState>& expected) const;

  Saver* saver_;
  int64_t step_;
  SaveAttempt attempt_;
  std::string directory_;
  bool removes_on_exit_ = true;  // whether what is in directory_ is to be removed
};

// A file of a checkpoint as it is on the disk, read whole and synced. `name` relative to
// `directory`.
StoredFile describe_file(FileSystem& file_system, const std::string& directory,
                         const std::string& name);

}  // namespace zeroth::checkpoint
