// The system calls by which checkpoints reach a disk, one method each, so that tests can make any
// of them fail, count them, and discard what was not synced. Names are relative to the directory
// that a FileSystem is opened for, as "step-8/zeroth/manifest.json". No part of a name is "..", and
// no link is followed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace zeroth::checkpoint {

// A FileSystemError is a failed call. Its message has the path, and the missing space if the disk
// is full.
class FileSystemError : public Error {
 public:
  // Formats the message as "PATH: WHAT failed: REASON".
  FileSystemError(const std::filesystem::path& path, std::string_view what, int reason,
                  std::string_view more = "");
  int reason() const { return reason_; }  // an errno
  // Returns whether the disk is full or a quota is exceeded. A retry can succeed once space is
  // freed.
  bool is_full() const;

 private:
  int reason_;
};

// A WritableFile is a file that this process created. Its destructor closes it without reporting
// errors.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Returns how many bytes were written: at least one, possibly fewer than given.
  virtual size_t write(std::span<const std::byte> bytes, int64_t offset) = 0;
  // Writes as write() does, and extends `crc` over the bytes that were written
  // (base/files/crc32c.h).
  virtual size_t write_with_crc(std::span<const std::byte> bytes, int64_t offset, uint32_t& crc);
  virtual void sync() = 0;
  virtual void close() = 0;
};

class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  virtual int64_t size() const = 0;
  // Returns how many bytes were read: at least one before the end of the file, none after it.
  virtual size_t read(std::span<std::byte> bytes, int64_t offset) = 0;
};

struct DirectoryEntry {
  enum class Kind { kFile, kDirectory, kOther };  // a link is kOther
  std::string name;
  Kind kind = Kind::kOther;
  int64_t size = 0;      // for a file only
  int64_t modified = 0;  // seconds since 1970
  bool ours = true;      // owned by this user
};

// FileSystem's calls each throw a FileSystemError on failure. Several threads may use it at once.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Directory that names are relative to, for messages and for callers that write by path.
  virtual const std::filesystem::path& path() const = 0;

  // Creates a file that must not exist. Reserves `size`, if it is known and the disk can do so.
  virtual std::unique_ptr<WritableFile> create(const std::string& name, int64_t size) = 0;
  // Opens a file that another rank created, to write this rank's own bytes.
  virtual std::unique_ptr<WritableFile> open_shared(const std::string& name) = 0;
  virtual std::unique_ptr<RandomAccessFile> open(const std::string& name) = 0;  // a regular file
  virtual void create_directory(const std::string& name) = 0;                   // must not exist
  // Returns the entries of a directory, sorted by name.
  virtual std::vector<DirectoryEntry> list(const std::string& directory) = 0;
  // Renames a file onto an existing file or a free name, or a directory onto a free name only.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Swaps two names atomically. Returns false if the file system does not support that.
  virtual bool exchange(const std::string& one, const std::string& other) = 0;
  virtual void remove_file(const std::string& name) = 0;       // or a link
  virtual void remove_directory(const std::string& name) = 0;  // an empty one
  // Makes the names in a directory durable across a crash of the machine; "" is the root directory.
  virtual void sync_directory(const std::string& name) = 0;
  // Makes the bytes of a file durable, whichever process wrote them.
  virtual void sync_file(const std::string& name) = 0;
  virtual int64_t free_bytes() = 0;
};

// Writes all bytes, in several calls if necessary.
void write_all(WritableFile& file, std::span<const std::byte> bytes, int64_t offset);
// Writes all bytes, in several calls if necessary. Returns the CRC of `bytes`.
uint32_t write_all_with_crc(WritableFile& file, std::span<const std::byte> bytes, int64_t offset);
// Reads bytes.size() bytes, in several calls if necessary. Throws if the file ends before.
void read_all(RandomAccessFile& file, std::span<std::byte> bytes, int64_t offset,
              const std::filesystem::path& path);
// Returns the CRC of the bytes [begin, end). Reads buffer.size() bytes at a time.
uint32_t read_crc(RandomAccessFile& file, int64_t begin, int64_t end, std::span<std::byte> buffer,
                  const std::filesystem::path& path);
std::string read_text(FileSystem& file_system, const std::string& name, int64_t max_bytes);
// Creates, writes, syncs and closes a file.
void write_text(FileSystem& file_system, const std::string& name, std::string_view text);
// Removes a file, or a directory with all of its contents. Does nothing if the name does not exist.
void remove_tree(FileSystem& file_system, const std::string& name);
// Returns the entry of `directory` with this name; nothing if there is none.
std::optional<DirectoryEntry> find_entry(FileSystem& file_system, const std::string& directory,
                                         const std::string& name);
// Returns whether `directory` has an entry of this name, of any kind.
bool exists(FileSystem& file_system, const std::string& directory, const std::string& name);

// Returns "a/b" for "a" and "b", and "b" for "" and "b".
std::string join_path(const std::string& directory, const std::string& name);
// Returns the two arguments from which join_path() makes `path`; the name has no slash.
std::pair<std::string, std::string> split_path(const std::string& path);
// Returns the absolute path of a name in this file system, or of its root directory for "".
std::filesystem::path full_path(const FileSystem& file_system, const std::string& name);
// Returns whether `text` is one name or several separated by slashes, none of them empty, "." or
// "..", or with a backslash or a NUL.
bool is_safe_path(std::string_view text);

// Maximum nesting of directories in a checkpoint. Anything deeper is foreign and is not entered, so
// that another program's directory costs no more than its number of entries.
inline constexpr size_t kMaxDepth = 16;
// Returns all entries below `directory`, named by their path relative to it, a directory after its
// own entries. A directory nested deeper than `levels` is not entered and becomes kOther.
std::vector<DirectoryEntry> list_tree(FileSystem& file_system, const std::string& directory,
                                      size_t levels = kMaxDepth);
// Returns whether a path exceeds the system's length limit or is nested deeper than kMaxDepth.
bool is_too_deep(std::string_view path);

}  // namespace zeroth::checkpoint
