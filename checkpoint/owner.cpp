#include "checkpoint/owner.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <vector>

#include "base/machine_id.h"
#include "base/printable.h"
#include "checkpoint/find.h"
#include "checkpoint/names.h"

namespace zeroth::checkpoint {
namespace {

constexpr int64_t kMostWords = 1000;

int64_t newest_epoch(const std::vector<Entry>& entries) {
  int64_t newest = 0;
  for (const Entry& entry : entries) {
    newest = std::max(newest, epoch_of_owner(entry.name).value_or(0));
  }
  return newest;
}

int64_t newest_epoch(Disk& disk) {
  return newest_epoch(disk.list(""));
}

std::string owner_name(int64_t epoch) {
  return fmt::format("{}{}", kOwner, epoch);
}

// The epoch of the next owner, larger than those of all owners and of all complete checkpoints: a
// copied folder may have no owner's file. Throws an Error that names what has to go where there is
// no larger one.
int64_t next_epoch(Disk& disk) {
  const int64_t owner = newest_epoch(disk);
  int64_t newest = owner;
  std::string where = owner_name(owner);
  for (const Found& found : list_checkpoints(disk)) {
    if (found.attempt.epoch <= newest) continue;
    newest = found.attempt.epoch;
    where = fmt::format("the attempt of {}", found.name);
  }
  if (newest < kMaxCount) return newest + 1;
  throw Error(
      "{} cannot have another owner: the epoch of {} is {}, the largest that there can be. Move "
      "that out of the folder while no run saves there.",
      disk.path().string(), where, newest);
}

}  // namespace

std::string this_process() {
  return fmt::format("process {} on {}, since {:%Y-%m-%d %H:%M:%S} UTC", ::getpid(), machine_name(),
                     fmt::gmtime(std::time(nullptr)));
}

Owner Owner::take(std::shared_ptr<Disk> disk, const std::string& who) {
  while (true) {
    const int64_t epoch = next_epoch(*disk);
    try {
      write_text(*disk, owner_name(epoch), who);
    } catch (const DiskError& error) {
      if (error.reason() == EEXIST) continue;  // another one was first
      throw;
    }
    disk->sync_folder("");  // before anything is saved under this epoch
    const std::vector<Entry> entries = disk->list("");
    // A later owner removes the file of an earlier one, whose epoch could then be given a second
    // time.
    if (newest_epoch(entries) > epoch) continue;
    for (const Entry& entry : entries) {
      if (epoch_of_owner(entry.name).value_or(epoch) < epoch) disk->remove_file(entry.name);
    }
    return Owner(std::move(disk), epoch);
  }
}

void Owner::check() const {
  const int64_t newest = newest_epoch(*disk_);
  if (newest == epoch_) return;
  std::string who;
  try {
    who = read_text(*disk_, owner_name(newest), kMostWords);
  } catch (const Error&) {
    // It says nothing of itself.
  }
  if (newest < epoch_) {
    throw Error("{} has lost {}: somebody removes what lies there", disk_->path().string(),
                owner_name(epoch_));
  }
  throw Error("{} is another run's by now (epoch {}{}{}; this one has {}): nothing is saved there",
              disk_->path().string(), newest, who.empty() ? "" : ": ", shortened(who), epoch_);
}

}  // namespace zeroth::checkpoint
