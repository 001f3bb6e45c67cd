#include "checkpoint/disk.h"

#include <limits.h>

#include <algorithm>
#include <cerrno>

#include "base/crc32c.h"
#include "base/process_limits.h"

namespace zeroth::checkpoint {

DiskError::DiskError(const std::filesystem::path& path, std::string_view what, int reason,
                     std::string_view more)
    : Error("{}: {} failed: {}{}", path.string(), what, system_reason(reason), more),
      reason_(reason) {}

bool DiskError::is_full() const {
  return reason_ == ENOSPC || reason_ == EDQUOT;
}

void write_all(NewFile& file, std::span<const std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    const size_t done = file.write(bytes, offset);
    bytes = bytes.subspan(done);
    offset += static_cast<int64_t>(done);
  }
}

size_t NewFile::write_and_sum(std::span<const std::byte> bytes, int64_t offset, uint32_t& crc) {
  const size_t done = write(bytes, offset);
  crc = crc32c(bytes.first(done), crc);
  return done;
}

uint32_t write_and_sum_all(NewFile& file, std::span<const std::byte> bytes, int64_t offset) {
  uint32_t crc = 0;
  while (!bytes.empty()) {
    const size_t done = file.write_and_sum(bytes, offset, crc);
    bytes = bytes.subspan(done);
    offset += static_cast<int64_t>(done);
  }
  return crc;
}

void read_all(OldFile& file, std::span<std::byte> bytes, int64_t offset,
              const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const size_t done = file.read(bytes, offset);
    if (done == 0) {
      throw Error("{} is cut short: {} bytes are missing at byte {}", path.string(), bytes.size(),
                  offset);
    }
    bytes = bytes.subspan(done);
    offset += static_cast<int64_t>(done);
  }
}

std::string read_text(Disk& disk, const std::string& name, int64_t most_bytes) {
  const auto file = disk.open(name);
  const std::filesystem::path path = disk.path() / name;
  if (file->size() > most_bytes) {
    throw Error("{} has {} bytes; at most {} are read", path.string(), file->size(), most_bytes);
  }
  std::string text(static_cast<size_t>(file->size()), '\0');
  read_all(*file, std::as_writable_bytes(std::span(text)), 0, path);
  return text;
}

void write_text(Disk& disk, const std::string& name, std::string_view text) {
  const auto file = disk.create(name, static_cast<int64_t>(text.size()));
  write_all(*file, std::as_bytes(std::span(text)), 0);
  file->sync();
  file->close();
}

namespace {

// Removes what is in the folder `name`, and moves what lies deeper than `levels` from there into
// `root`, under names that are free there.
class TreeRemoval {
 public:
  TreeRemoval(Disk& disk, const std::string& root) : disk_(disk), root_(root) {}

  void remove_all() {
    do {
      moved_ = false;
      remove_inside(root_, kMaxDepth);
    } while (moved_);
  }

 private:
  void remove_inside(const std::string& name, size_t levels) {
    for (const Entry& entry : disk_.list(name)) {
      const std::string inner = joined(name, entry.name);
      if (entry.kind != Entry::Kind::kFolder) {
        disk_.remove_file(inner);
      } else if (levels > 0) {
        remove_inside(inner, levels - 1);
        disk_.remove_folder(inner);
      } else {
        move_up(inner);
      }
    }
  }
  void move_up(const std::string& name) {
    std::string free;
    do {
      free = fmt::format("moved-{}", ++names_);
    } while (holds(disk_, root_, free));
    disk_.rename(name, joined(root_, free));
    moved_ = true;
  }

  Disk& disk_;
  const std::string& root_;
  int64_t names_ = 0;
  bool moved_ = false;
};

}  // namespace

void remove_tree(Disk& disk, const std::string& name) {
  const size_t slash = name.rfind('/');
  const std::string folder = slash == name.npos ? "" : name.substr(0, slash);
  const std::string last = slash == name.npos ? name : name.substr(slash + 1);
  const std::vector<Entry> entries = disk.list(folder);
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.name == last; });
  if (found == entries.end()) return;
  if (found->kind != Entry::Kind::kFolder) return disk.remove_file(name);
  TreeRemoval(disk, name).remove_all();
  disk.remove_folder(name);
}

bool holds(Disk& disk, const std::string& folder, const std::string& name) {
  const auto entries = disk.list(folder);
  return std::any_of(entries.begin(), entries.end(),
                     [&](const Entry& entry) { return entry.name == name; });
}

std::string joined(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

std::filesystem::path path_to(const Disk& disk, const std::string& name) {
  return name.empty() ? disk.path() : disk.path() / name;
}

bool is_plain_path(std::string_view text) {
  if (text.find_first_of(std::string_view("\\\0", 2)) != text.npos) return false;
  while (true) {
    const size_t slash = text.find('/');
    const std::string_view part = text.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == text.npos) return true;
    text.remove_prefix(slash + 1);
  }
}

bool is_too_deep(std::string_view path) {
  return path.size() >= PATH_MAX ||
         std::count(path.begin(), path.end(), '/') > static_cast<ptrdiff_t>(kMaxDepth);
}

}  // namespace zeroth::checkpoint
