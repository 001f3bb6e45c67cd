// A save: ranks write into a folder of its own, one of them makes it a checkpoint.
//
//   Saver saver(disk, ranks, {.run_id = id});          // once in a run
//   Save save = saver.begin(step, bytes_of_this_rank);
//   Contribution mine;
//   save.stage("writing", [&] {
//     PieceFile file = save.piece_file(pieces);
//     for (...) file.write(index, bytes);
//     mine.files.push_back(file.finish(save.piece_file_name()));
//   });
//   const Committed done = save.commit(mine, manifest);
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

#include "checkpoint/contribution.h"
#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "checkpoint/names.h"
#include "checkpoint/owner.h"
#include "checkpoint/piece_file.h"
#include "checkpoint/ranks.h"
#include "checkpoint/retention.h"

namespace zeroth::checkpoint {

struct SaverOptions {
  std::string run_id;
  int64_t keep = 2;  // newest ones; 0: all
  // What the run goes on from. Later saves have the one before as parent.
  std::optional<Parent> parent = {};
  std::string who = this_process();  // for whoever finds the folder taken
};

struct Committed {
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
  Saver(std::shared_ptr<Disk> disk, Ranks& ranks, SaverOptions options);

  int64_t epoch() const { return epoch_; }
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
  void put_in_place(const Save& save, bool& committed) const;
  std::vector<std::string> tidy(const Save& save) const;
  bool commits() const { return ranks_.rank() == 0; }

  std::shared_ptr<Disk> disk_;
  Ranks& ranks_;
  SaverOptions options_;
  std::optional<Owner> owner_;  // rank 0
  int64_t epoch_ = 0;
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
  const std::string& folder() const { return folder_; }
  std::filesystem::path path() const;
  Disk& disk() const;
  // Of this rank: relative to folder(), and the file.
  std::string piece_file_name() const;
  PieceFile piece_file(std::vector<Piece> pieces) const;

  // A part of the save: what `action` throws on any rank becomes an Error on all. Collective.
  template <typename Action>
  void stage(std::string_view what, Action action) const {
    together(saver_->ranks_, name_of(what), action);
  }

  // `facts` of rank 0 is what the manifest will say; step, run, attempt, time, parent and files are
  // filled in. All ranks must have the same must_equal. `expected`, where it is given on rank 0:
  // all states that there must be. Files in folder() that no rank reports are read and listed, too.
  // Collective.
  Committed commit(const Contribution& mine, Manifest facts,
                   const std::vector<WholeState>& expected = {});

 private:
  friend class Saver;
  Save(Saver& saver, int64_t step, const Attempt& attempt);
  std::string name_of(std::string_view what) const;
  std::string old_name() const;  // of what it replaces, where that takes two steps
  // Returns its CRC.
  uint32_t write_manifest(const std::vector<std::string>& reports, Manifest facts,
                          const std::vector<WholeState>& expected) const;

  Saver* saver_;
  int64_t step_;
  Attempt attempt_;
  std::string folder_;
  bool ends_ = true;  // whether what is in folder_ is to be removed
};

// A file of a checkpoint as it is on the disk, read whole and synced. `name` relative to `folder`.
StoredFile describe_file(Disk& disk, const std::string& folder, const std::string& name);

}  // namespace zeroth::checkpoint
