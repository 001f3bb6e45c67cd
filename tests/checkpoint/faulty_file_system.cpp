#include "tests/checkpoint/faulty_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace zeroth::checkpoint {
namespace {

std::string folder_name(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == name.npos ? "" : name.substr(0, slash);
}

std::string last_of(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

}  // namespace

class FaultyFileSystem::File : public WritableFile, public RandomAccessFile {
 public:
  File(FaultyFileSystem& file_system, NodePtr node, std::string name)
      : file_system_(file_system), node_(std::move(node)), name_(std::move(name)) {}

  size_t write(std::span<const std::byte> bytes, int64_t offset) override {
    const std::lock_guard lock(file_system_.mutex_);
    const bool whole = file_system_.begins("write", name_);
    const size_t count = whole ? bytes.size() : (bytes.size() + 1) / 2;
    const size_t end = static_cast<size_t>(offset) + count;
    if (node_->bytes.size() < end) node_->bytes.resize(end);
    std::memcpy(node_->bytes.data() + offset, bytes.data(), count);
    return count;
  }
  void sync() override {
    const std::lock_guard lock(file_system_.mutex_);
    file_system_.begins("fsync", name_);
    node_->synced_bytes = node_->bytes;
  }
  void close() override {
    const std::lock_guard lock(file_system_.mutex_);
    file_system_.begins("close", name_);
  }
  int64_t size() const override { return std::ssize(node_->bytes); }
  size_t read(std::span<std::byte> bytes, int64_t offset) override {
    const std::lock_guard lock(file_system_.mutex_);
    const auto from = std::min(static_cast<size_t>(offset), node_->bytes.size());
    const size_t count = std::min(bytes.size(), node_->bytes.size() - from);
    std::memcpy(bytes.data(), node_->bytes.data() + from, count);
    return count;
  }

 private:
  FaultyFileSystem& file_system_;
  NodePtr node_;
  std::string name_;
};

FaultyFileSystem::FaultyFileSystem() : root_(std::make_shared<Node>()) {
  root_->is_folder = true;
}

void FaultyFileSystem::set_fault(std::optional<Fault> fault) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
  calls_ = 0;
  log_.clear();
}

int64_t FaultyFileSystem::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

// False where the call is to be cut short.
bool FaultyFileSystem::begins(const std::string& what, const std::string& name) {
  if (ended_) throw MachineEnd{};
  ++calls_;
  log_.push_back(what + " " + name);
  if (!fault_ || fault_->call != calls_) return true;
  if (fault_->kind == Fault::Kind::kShort) return false;
  if (fault_->kind == Fault::Kind::kError) fail(what, name, fault_->error);
  ended_ = true;
  throw MachineEnd{};
}

void FaultyFileSystem::fail(const std::string& what, const std::string& name, int error) const {
  throw FileSystemError(path_ / name, what, error);
}

FaultyFileSystem::NodePtr FaultyFileSystem::find(const std::string& name) const {
  if (ended_) throw MachineEnd{};
  NodePtr at = root_;
  if (name.empty()) return at;
  for (const std::filesystem::path& part : std::filesystem::path(name)) {
    if (!at->is_folder) return nullptr;
    const auto found = at->names.find(part.string());
    if (found == at->names.end()) return nullptr;
    at = found->second;
  }
  return at;
}

FaultyFileSystem::NodePtr FaultyFileSystem::open_parent(const std::string& what,
                                                        const std::string& name) const {
  ZEROTH_CHECK(is_safe_path(name), "{} is no name", name);
  const NodePtr directory = find(folder_name(name));
  if (!directory) fail(what, name, ENOENT);
  if (!directory->is_folder) fail(what, name, ENOTDIR);
  return directory;
}

void FaultyFileSystem::change(const NodePtr& directory, Change change) {
  for (const auto& [name, node] : change) {
    if (node) {
      directory->names[name] = node;
    } else {
      directory->names.erase(name);
    }
  }
  directory->changes.push_back(std::move(change));
}

std::string& FaultyFileSystem::bytes_of(const std::string& name) {
  const NodePtr node = find(name);
  ZEROTH_CHECK(node && !node->is_folder, "no file {}", name);
  return node->bytes;
}

std::unique_ptr<WritableFile> FaultyFileSystem::create(const std::string& name, int64_t) {
  const std::lock_guard lock(mutex_);
  begins("create", name);
  const NodePtr directory = open_parent("making the file", name);
  if (directory->names.contains(last_of(name))) fail("making the file", name, EEXIST);
  const NodePtr node = std::make_shared<Node>();
  change(directory, {{last_of(name), node}});
  return std::make_unique<File>(*this, node, name);
}

std::unique_ptr<WritableFile> FaultyFileSystem::open_shared(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(name);
  if (!node || node->is_folder) fail("opening the file", name, ENOENT);
  return std::make_unique<File>(*this, node, name);
}

std::unique_ptr<RandomAccessFile> FaultyFileSystem::open(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(name);
  if (!node) fail("opening the file", name, ENOENT);
  if (node->is_folder) throw Error("{} is not a regular file", (path_ / name).string());
  return std::make_unique<File>(*this, node, name);
}

void FaultyFileSystem::create_directory(const std::string& name) {
  const std::lock_guard lock(mutex_);
  begins("mkdir", name);
  const NodePtr directory = open_parent("making the folder", name);
  if (directory->names.contains(last_of(name))) fail("making the folder", name, EEXIST);
  const NodePtr node = std::make_shared<Node>();
  node->is_folder = true;
  change(directory, {{last_of(name), node}});
}

std::vector<DirectoryEntry> FaultyFileSystem::list(const std::string& directory) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(directory);
  if (!node) fail("listing the folder", directory, ENOENT);
  if (!node->is_folder) fail("listing the folder", directory, ENOTDIR);
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, inner] : node->names) {
    entries.push_back(
        {.name = name,
         .kind = inner->is_folder ? DirectoryEntry::Kind::kDirectory : DirectoryEntry::Kind::kFile,
         .size = std::ssize(inner->bytes)});
  }
  return entries;
}

void FaultyFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  begins("rename", from + " " + to);
  ZEROTH_CHECK(folder_name(from) == folder_name(to), "{} and {}", from, to);
  const NodePtr directory = open_parent("renaming", from);
  const NodePtr node = find(from), there = find(to);
  if (!node) fail("renaming", from, ENOENT);
  if (there && there->is_folder && !there->names.empty()) fail("renaming", from, ENOTEMPTY);
  if (there && there->is_folder != node->is_folder) fail("renaming", from, ENOTDIR);
  change(directory, {{last_of(from), nullptr}, {last_of(to), node}});
}

bool FaultyFileSystem::exchange(const std::string& one, const std::string& other) {
  const std::lock_guard lock(mutex_);
  begins("exchange", one + " " + other);
  if (!has_exchange_) return false;
  const NodePtr directory = open_parent("exchanging", one);
  const NodePtr first = find(one), second = find(other);
  if (!first || !second) fail("exchanging", one, ENOENT);
  change(directory, {{last_of(one), second}, {last_of(other), first}});
  return true;
}

void FaultyFileSystem::remove_file(const std::string& name) {
  const std::lock_guard lock(mutex_);
  begins("unlink", name);
  const NodePtr directory = open_parent("removing the file", name);
  if (directory->names.contains(last_of(name))) change(directory, {{last_of(name), nullptr}});
}

void FaultyFileSystem::remove_directory(const std::string& name) {
  const std::lock_guard lock(mutex_);
  begins("rmdir", name);
  const NodePtr node = find(name);
  if (!node) return;
  if (!node->names.empty()) fail("removing the folder", name, ENOTEMPTY);
  change(open_parent("removing the folder", name), {{last_of(name), nullptr}});
}

void FaultyFileSystem::sync_directory(const std::string& name) {
  const std::lock_guard lock(mutex_);
  begins("fsync", name.empty() ? "." : name);
  const NodePtr node = find(name);
  if (!node || !node->is_folder) fail("fsync", name, ENOENT);
  node->synced_names = node->names;
  node->changes.clear();
}

void FaultyFileSystem::sync_file(const std::string& name) {
  const std::lock_guard lock(mutex_);
  begins("fsync", name);
  const NodePtr node = find(name);
  if (!node || node->is_folder) fail("fsync", name, ENOENT);
  node->synced_bytes = node->bytes;
}

// Of bytes: what was synced; the rest of a longer file is there in its size, with or without its
// bytes. Of names: what was synced, with a part of the changes since, each whole.
FaultyFileSystem::NodePtr FaultyFileSystem::surviving(const Node& node, std::mt19937& random,
                                                      std::map<const Node*, NodePtr>& done) {
  NodePtr& copy = done[&node];
  if (copy) return copy;
  copy = std::make_shared<Node>();
  copy->is_folder = node.is_folder;
  const NodePtr result = copy;  // the map may move its entries
  if (!node.is_folder) {
    result->bytes = node.synced_bytes;
    const auto chance = random() % 4;
    if (chance == 1) result->bytes = node.bytes;
    if (chance == 2) result->bytes.resize(node.bytes.size(), '\0');
    result->synced_bytes = result->bytes;
    return result;
  }
  Names names = node.synced_names;
  std::vector<Change> kept;
  const auto mode = random() % 4;  // none, all, some, or the last one before all others
  for (const Change& change : node.changes) {
    if (mode == 1 || (mode == 2 && random() % 2 == 0)) kept.push_back(change);
  }
  if (mode == 3 && !node.changes.empty()) kept = {node.changes.back()};
  for (const Change& change : kept) {
    for (const auto& [name, inner] : change) {
      if (inner) {
        names[name] = inner;
      } else {
        names.erase(name);
      }
    }
  }
  for (const auto& [name, inner] : names) result->names[name] = surviving(*inner, random, done);
  result->synced_names = result->names;
  return result;
}

std::shared_ptr<FaultyFileSystem> FaultyFileSystem::after_end(uint32_t seed) const {
  const std::lock_guard lock(mutex_);
  std::mt19937 random(seed);
  std::map<const Node*, NodePtr> done;
  auto file_system = std::make_shared<FaultyFileSystem>();
  file_system->root_ = surviving(*root_, random, done);
  file_system->has_exchange_ = has_exchange_;
  return file_system;
}

}  // namespace zeroth::checkpoint
