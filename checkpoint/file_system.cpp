#include "checkpoint/file_system.h"

#include <limits.h>

#include <algorithm>
#include <cerrno>

#include "base/files/crc32c.h"
#include "base/machine/process_limits.h"

namespace zeroth::checkpoint {
namespace {

// Calls transfer(rest, offset), which returns how many bytes it has transferred, until all are.
template <typename Byte, typename Transfer>
void transfer_all(std::span<Byte> bytes, int64_t offset, const Transfer& transfer) {
  while (!bytes.empty()) {
    const size_t done = transfer(bytes, offset);
    bytes = bytes.subspan(done);
    offset += static_cast<int64_t>(done);
  }
}

// TreeRemover removes the contents of the directory `root`. It moves entries that are nested too
// deep to recurse into up to `root`, under free names.
class TreeRemover {
 public:
  TreeRemover(FileSystem& file_system, const std::string& root)
      : file_system_(file_system), root_(root) {}

  void remove_all() {
    do {
      moved_ = false;
      remove_inside(root_, kMaxDepth);
    } while (moved_);
  }

 private:
  void remove_inside(const std::string& name, size_t levels) {
    for (const DirectoryEntry& entry : file_system_.list(name)) {
      const std::string inner = join_path(name, entry.name);
      if (entry.kind != DirectoryEntry::Kind::kDirectory) {
        file_system_.remove_file(inner);
      } else if (levels > 0) {
        remove_inside(inner, levels - 1);
        file_system_.remove_directory(inner);
      } else {
        move_up(inner);
      }
    }
  }
  void move_up(const std::string& name) {
    std::string free;
    do {
      free = fmt::format("moved-{}", ++num_names_);
    } while (exists(file_system_, root_, free));
    file_system_.rename(name, join_path(root_, free));
    moved_ = true;
  }

  FileSystem& file_system_;
  const std::string& root_;
  int64_t num_names_ = 0;
  bool moved_ = false;
};

}  // namespace

FileSystemError::FileSystemError(const std::filesystem::path& path, std::string_view what,
                                 int reason, std::string_view more)
    : Error("{}: {} failed: {}{}", path.string(), what, system_reason(reason), more),
      reason_(reason) {}

bool FileSystemError::is_full() const {
  return reason_ == ENOSPC || reason_ == EDQUOT;
}

size_t WritableFile::write_with_crc(std::span<const std::byte> bytes, int64_t offset,
                                    uint32_t& crc) {
  const size_t done = write(bytes, offset);
  crc = crc32c(bytes.first(done), crc);
  return done;
}

void write_all(WritableFile& file, std::span<const std::byte> bytes, int64_t offset) {
  transfer_all(bytes, offset, [&](auto rest, int64_t at) { return file.write(rest, at); });
}

uint32_t write_all_with_crc(WritableFile& file, std::span<const std::byte> bytes, int64_t offset) {
  uint32_t crc = 0;
  transfer_all(bytes, offset,
               [&](auto rest, int64_t at) { return file.write_with_crc(rest, at, crc); });
  return crc;
}

void read_all(RandomAccessFile& file, std::span<std::byte> bytes, int64_t offset,
              const std::filesystem::path& path) {
  transfer_all(bytes, offset, [&](auto rest, int64_t at) {
    const size_t done = file.read(rest, at);
    if (done > 0) return done;
    throw Error("{} is cut short: {} bytes are missing at byte {}", path.string(), rest.size(), at);
  });
}

uint32_t read_crc(RandomAccessFile& file, int64_t begin, int64_t end, std::span<std::byte> buffer,
                  const std::filesystem::path& path) {
  uint32_t crc = 0;
  for (int64_t at = begin; at < end; at += std::ssize(buffer)) {
    const auto part = buffer.first(static_cast<size_t>(std::min(std::ssize(buffer), end - at)));
    read_all(file, part, at, path);
    crc = crc32c(part, crc);
  }
  return crc;
}

std::string read_text(FileSystem& file_system, const std::string& name, int64_t max_bytes) {
  const auto file = file_system.open(name);
  const std::filesystem::path path = file_system.path() / name;
  if (file->size() > max_bytes) {
    throw Error("{} has {} bytes; at most {} are read", path.string(), file->size(), max_bytes);
  }
  std::string text(static_cast<size_t>(file->size()), '\0');
  read_all(*file, std::as_writable_bytes(std::span(text)), 0, path);
  return text;
}

void write_text(FileSystem& file_system, const std::string& name, std::string_view text) {
  const auto file = file_system.create(name, static_cast<int64_t>(text.size()));
  write_all(*file, std::as_bytes(std::span(text)), 0);
  file->sync();
  file->close();
}

void remove_tree(FileSystem& file_system, const std::string& name) {
  const auto [directory, last] = split_path(name);
  const auto found = find_entry(file_system, directory, last);
  if (!found) return;
  if (found->kind != DirectoryEntry::Kind::kDirectory) return file_system.remove_file(name);
  TreeRemover(file_system, name).remove_all();
  file_system.remove_directory(name);
}

std::optional<DirectoryEntry> find_entry(FileSystem& file_system, const std::string& directory,
                                         const std::string& name) {
  for (DirectoryEntry& entry : file_system.list(directory)) {
    if (entry.name == name) return std::move(entry);
  }
  return std::nullopt;
}

bool exists(FileSystem& file_system, const std::string& directory, const std::string& name) {
  return find_entry(file_system, directory, name).has_value();
}

std::string join_path(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

std::filesystem::path full_path(const FileSystem& file_system, const std::string& name) {
  return name.empty() ? file_system.path() : file_system.path() / name;
}

bool is_safe_path(std::string_view text) {
  if (text.find_first_of(std::string_view("\\\0", 2)) != text.npos) return false;
  while (true) {
    const size_t slash = text.find('/');
    const std::string_view part = text.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == text.npos) return true;
    text.remove_prefix(slash + 1);
  }
}

std::vector<DirectoryEntry> list_tree(FileSystem& file_system, const std::string& directory,
                                      size_t levels) {
  std::vector<DirectoryEntry> tree;
  for (DirectoryEntry& entry : file_system.list(directory)) {
    const bool is_directory = entry.kind == DirectoryEntry::Kind::kDirectory;
    if (is_directory && levels == 0) entry.kind = DirectoryEntry::Kind::kOther;
    if (is_directory && levels > 0) {
      for (DirectoryEntry& inner :
           list_tree(file_system, join_path(directory, entry.name), levels - 1)) {
        inner.name = join_path(entry.name, inner.name);
        tree.push_back(std::move(inner));
      }
    }
    tree.push_back(std::move(entry));
  }
  return tree;
}

bool is_too_deep(std::string_view path) {
  return path.size() >= PATH_MAX ||
         std::count(path.begin(), path.end(), '/') > static_cast<ptrdiff_t>(kMaxDepth);
}

}  // namespace zeroth::checkpoint
