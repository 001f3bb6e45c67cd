// The calls by which checkpoints reach a disk, one each, so that tests can make any of them fail,
// count them, and forget what was not synced. Names are relative to the folder that a FileSystem is
// opened for, as "step-8/zeroth/manifest.json"; no part of one is "..", and no link is followed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace zeroth::checkpoint {

// What a call failed with: the message has the path, and what the disk lacked where it was full.
class FileSystemError : public Error {
 public:
  // "PATH: WHAT failed: REASON".
  FileSystemError(const std::filesystem::path& path, std::string_view what, int reason,
                  std::string_view more = "");
  int reason() const { return reason_; }  // an errno
  // Full, or beyond a quota: as good as any other place later, once somebody makes room.
  bool is_full() const;

 private:
  int reason_;
};

// A file that this process made. Closed without a word when it goes before close().
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Returns how many bytes were written: at least one, perhaps fewer than given.
  virtual size_t write(std::span<const std::byte> bytes, int64_t offset) = 0;
  // As write(); `crc` goes on over what was written (base/crc32c.h).
  virtual size_t write_with_crc(std::span<const std::byte> bytes, int64_t offset, uint32_t& crc);
  virtual void sync() = 0;
  virtual void close() = 0;
};

class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  virtual int64_t size() const = 0;
  // Returns how many bytes were read, at least one; none behind the end.
  virtual size_t read(std::span<std::byte> bytes, int64_t offset) = 0;
};

struct DirectoryEntry {
  enum class Kind { kFile, kDirectory, kOther };  // a link is something other
  std::string name;
  Kind kind = Kind::kOther;
  int64_t size = 0;      // of a file
  int64_t modified = 0;  // seconds since 1970
  bool ours = true;      // belongs to this user
};

// Each call throws a FileSystemError. May be used by several threads at once.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // The folder that names are relative to: for messages, and for those who write by a path.
  virtual const std::filesystem::path& path() const = 0;

  // A file that must not be there. `size`, where it is known, is set aside if the disk can do so.
  virtual std::unique_ptr<WritableFile> create(const std::string& name, int64_t size) = 0;
  // One that another rank has made, for bytes of this rank's own.
  virtual std::unique_ptr<WritableFile> open_shared(const std::string& name) = 0;
  virtual std::unique_ptr<RandomAccessFile> open(const std::string& name) = 0;  // a regular file
  virtual void create_directory(const std::string& name) = 0;                   // must not be there
  // What is in a folder, by name.
  virtual std::vector<DirectoryEntry> list(const std::string& directory) = 0;
  // Onto a file that is there, or where there is nothing; a folder only onto nothing.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Two names change their meaning in one step. False where the file system cannot do that.
  virtual bool exchange(const std::string& one, const std::string& other) = 0;
  virtual void remove_file(const std::string& name) = 0;       // or a link
  virtual void remove_directory(const std::string& name) = 0;  // an empty one
  // The names in a folder outlive the machine's end from here on; "": the disk's own folder.
  virtual void sync_directory(const std::string& name) = 0;
  // What was written to a file, by whomever.
  virtual void sync_file(const std::string& name) = 0;
  virtual int64_t free_bytes() = 0;
};

// Of several calls each.
void write_all(WritableFile& file, std::span<const std::byte> bytes, int64_t offset);
// The same. Returns the CRC of `bytes`.
uint32_t write_all_with_crc(WritableFile& file, std::span<const std::byte> bytes, int64_t offset);
// Throws where the file ends before.
void read_all(RandomAccessFile& file, std::span<std::byte> bytes, int64_t offset,
              const std::filesystem::path& path);
std::string read_text(FileSystem& file_system, const std::string& name, int64_t max_bytes);
// Made, written, synced and closed.
void write_text(FileSystem& file_system, const std::string& name, std::string_view text);
// A file, or a folder with all that is in it. Nothing happens where there is none.
void remove_tree(FileSystem& file_system, const std::string& name);
// Whether the folder `directory` holds this name, whatever it is.
bool exists(FileSystem& file_system, const std::string& directory, const std::string& name);

// "a/b" of "a" and "b"; "b" of "" and "b".
std::string join_path(const std::string& directory, const std::string& name);
// Of a name on this disk; of "": of its folder.
std::filesystem::path full_path(const FileSystem& file_system, const std::string& name);
// A name or several with a slash between them; none is empty, "." or "..", has a backslash or a
// NUL.
bool is_safe_path(std::string_view text);

// How many folders a checkpoint may have within each other. What lies deeper is not ours and is not
// entered, so that no folder of another program costs more than its number of entries.
inline constexpr size_t kMaxDepth = 16;
// Whether a path is longer than the system accepts, or lies in more folders than kMaxDepth.
bool is_too_deep(std::string_view path);

}  // namespace zeroth::checkpoint
