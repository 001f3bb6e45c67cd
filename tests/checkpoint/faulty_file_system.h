// A disk in memory that loses, when the machine ends, what was not synced: the bytes of files, and
// names in folders, of which any part may have reached the disk in any order. Any call can be made
// to fail, to write less than it was given, or to be the last one of the machine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/file_system.h"

namespace zeroth::checkpoint {

// The machine has ended.
struct MachineEnd {};

class FaultyFileSystem : public FileSystem {
 public:
  FaultyFileSystem();

  // Calls that change or sync something are counted from 1; at number `call` this happens.
  struct Fault {
    enum class Kind {
      kEnd,    // before the call; each later one ends, too
      kError,  // the call fails with `error`
      kShort,  // a write takes half of its bytes; of other calls nothing changes
    };
    int64_t call = 0;
    Kind kind = Kind::kEnd;
    int error = 0;
  };
  void set_fault(std::optional<Fault> fault);
  int64_t calls() const;
  // The kind of each call: "write step-8/x".
  const std::vector<std::string>& log() const { return log_; }

  // What a machine finds that starts again: of all that was not synced a part by chance.
  std::shared_ptr<FaultyFileSystem> after_end(uint32_t seed) const;

  // For tests: bytes of a file as they are now.
  std::string& bytes_of(const std::string& name);
  void set_free_bytes(int64_t bytes) { free_ = bytes; }
  void set_has_exchange(bool has) { has_exchange_ = has; }

  const std::filesystem::path& path() const override { return path_; }
  std::unique_ptr<WritableFile> create(const std::string& name, int64_t size) override;
  std::unique_ptr<WritableFile> open_shared(const std::string& name) override;
  std::unique_ptr<RandomAccessFile> open(const std::string& name) override;
  void create_directory(const std::string& name) override;
  std::vector<DirectoryEntry> list(const std::string& directory) override;
  void rename(const std::string& from, const std::string& to) override;
  bool exchange(const std::string& one, const std::string& other) override;
  void remove_file(const std::string& name) override;
  void remove_directory(const std::string& name) override;
  void sync_directory(const std::string& name) override;
  void sync_file(const std::string& name) override;
  int64_t free_bytes() override { return free_; }

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  using Names = std::map<std::string, NodePtr>;
  // Names that a folder gets or loses in one step.
  using Change = std::map<std::string, NodePtr>;  // null: loses
  struct Node {
    bool is_folder = false;
    std::string bytes, synced_bytes;
    Names names, synced_names;
    std::vector<Change> changes;  // since the last sync
  };
  class File;

  bool begins(const std::string& what, const std::string& name);
  [[noreturn]] void fail(const std::string& what, const std::string& name, int error) const;
  NodePtr find(const std::string& name) const;  // null where there is none
  NodePtr open_parent(const std::string& what, const std::string& name) const;
  void change(const NodePtr& directory, Change change);
  static NodePtr surviving(const Node& node, std::mt19937& random,
                           std::map<const Node*, NodePtr>& done);

  std::filesystem::path path_ = "/fake";
  NodePtr root_;
  mutable std::mutex mutex_;
  std::optional<Fault> fault_;
  bool ended_ = false;
  bool has_exchange_ = true;
  int64_t calls_ = 0;
  int64_t free_ = int64_t{1} << 40;
  std::vector<std::string> log_;
};

}  // namespace zeroth::checkpoint
