#include "tests/checkpoint/fake_disk.h"

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

class FakeDisk::File : public NewFile, public OldFile {
 public:
  File(FakeDisk& disk, NodePtr node, std::string name)
      : disk_(disk), node_(std::move(node)), name_(std::move(name)) {}

  size_t write(std::span<const std::byte> bytes, int64_t offset) override {
    const std::lock_guard lock(disk_.mutex_);
    const bool whole = disk_.begins("write", name_);
    const size_t count = whole ? bytes.size() : (bytes.size() + 1) / 2;
    const size_t end = static_cast<size_t>(offset) + count;
    if (node_->bytes.size() < end) node_->bytes.resize(end);
    std::memcpy(node_->bytes.data() + offset, bytes.data(), count);
    return count;
  }
  void sync() override {
    const std::lock_guard lock(disk_.mutex_);
    disk_.begins("fsync", name_);
    node_->synced_bytes = node_->bytes;
  }
  void close() override {
    const std::lock_guard lock(disk_.mutex_);
    disk_.begins("close", name_);
  }
  int64_t size() const override { return std::ssize(node_->bytes); }
  size_t read(std::span<std::byte> bytes, int64_t offset) override {
    const std::lock_guard lock(disk_.mutex_);
    const auto from = std::min(static_cast<size_t>(offset), node_->bytes.size());
    const size_t count = std::min(bytes.size(), node_->bytes.size() - from);
    std::memcpy(bytes.data(), node_->bytes.data() + from, count);
    return count;
  }

 private:
  FakeDisk& disk_;
  NodePtr node_;
  std::string name_;
};

FakeDisk::FakeDisk() : root_(std::make_shared<Node>()) {
  root_->is_folder = true;
}

void FakeDisk::set_fault(std::optional<Fault> fault) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
  calls_ = 0;
  log_.clear();
}

int64_t FakeDisk::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

// False where the call is to be cut short.
bool FakeDisk::begins(const std::string& what, const std::string& name) {
  if (ended_) throw MachineEnd{};
  ++calls_;
  log_.push_back(what + " " + name);
  if (!fault_ || fault_->call != calls_) return true;
  if (fault_->kind == Fault::Kind::kShort) return false;
  if (fault_->kind == Fault::Kind::kError) fail(what, name, fault_->error);
  ended_ = true;
  throw MachineEnd{};
}

void FakeDisk::fail(const std::string& what, const std::string& name, int error) const {
  throw DiskError(path_ / name, what, error);
}

FakeDisk::NodePtr FakeDisk::find(const std::string& name) const {
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

FakeDisk::NodePtr FakeDisk::folder_of(const std::string& what, const std::string& name) const {
  ZEROTH_CHECK(is_plain_path(name), "{} is no name", name);
  const NodePtr folder = find(folder_name(name));
  if (!folder) fail(what, name, ENOENT);
  if (!folder->is_folder) fail(what, name, ENOTDIR);
  return folder;
}

void FakeDisk::change(const NodePtr& folder, Change change) {
  for (const auto& [name, node] : change) {
    if (node) {
      folder->names[name] = node;
    } else {
      folder->names.erase(name);
    }
  }
  folder->changes.push_back(std::move(change));
}

std::string& FakeDisk::bytes_of(const std::string& name) {
  const NodePtr node = find(name);
  ZEROTH_CHECK(node && !node->is_folder, "no file {}", name);
  return node->bytes;
}

std::unique_ptr<NewFile> FakeDisk::create(const std::string& name, int64_t) {
  const std::lock_guard lock(mutex_);
  begins("create", name);
  const NodePtr folder = folder_of("making the file", name);
  if (folder->names.contains(last_of(name))) fail("making the file", name, EEXIST);
  const NodePtr node = std::make_shared<Node>();
  change(folder, {{last_of(name), node}});
  return std::make_unique<File>(*this, node, name);
}

std::unique_ptr<NewFile> FakeDisk::join(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(name);
  if (!node || node->is_folder) fail("opening the file", name, ENOENT);
  return std::make_unique<File>(*this, node, name);
}

std::unique_ptr<OldFile> FakeDisk::open(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(name);
  if (!node) fail("opening the file", name, ENOENT);
  if (node->is_folder) throw Error("{} is no regular file", (path_ / name).string());
  return std::make_unique<File>(*this, node, name);
}

void FakeDisk::make_folder(const std::string& name) {
  const std::lock_guard lock(mutex_);
  begins("mkdir", name);
  const NodePtr folder = folder_of("making the folder", name);
  if (folder->names.contains(last_of(name))) fail("making the folder", name, EEXIST);
  const NodePtr node = std::make_shared<Node>();
  node->is_folder = true;
  change(folder, {{last_of(name), node}});
}

std::vector<Entry> FakeDisk::list(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(folder);
  if (!node) fail("listing the folder", folder, ENOENT);
  if (!node->is_folder) fail("listing the folder", folder, ENOTDIR);
  std::vector<Entry> entries;
  for (const auto& [name, inner] : node->names) {
    entries.push_back({.name = name,
                       .kind = inner->is_folder ? Entry::Kind::kFolder : Entry::Kind::kFile,
                       .size = std::ssize(inner->bytes)});
  }
  return entries;
}

void FakeDisk::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  begins("rename", from + " " + to);
  ZEROTH_CHECK(folder_name(from) == folder_name(to), "{} and {}", from, to);
  const NodePtr folder = folder_of("renaming", from);
  const NodePtr node = find(from), there = find(to);
  if (!node) fail("renaming", from, ENOENT);
  if (there && there->is_folder && !there->names.empty()) fail("renaming", from, ENOTEMPTY);
  if (there && there->is_folder != node->is_folder) fail("renaming", from, ENOTDIR);
  change(folder, {{last_of(from), nullptr}, {last_of(to), node}});
}

bool FakeDisk::exchange(const std::string& one, const std::string& other) {
  const std::lock_guard lock(mutex_);
  begins("exchange", one + " " + other);
  if (!has_exchange_) return false;
  const NodePtr folder = folder_of("taking the place", one);
  const NodePtr first = find(one), second = find(other);
  if (!first || !second) fail("taking the place", one, ENOENT);
  change(folder, {{last_of(one), second}, {last_of(other), first}});
  return true;
}

void FakeDisk::remove_file(const std::string& name) {
  const std::lock_guard lock(mutex_);
  begins("unlink", name);
  const NodePtr folder = folder_of("removing the file", name);
  if (folder->names.contains(last_of(name))) change(folder, {{last_of(name), nullptr}});
}

void FakeDisk::remove_folder(const std::string& name) {
  const std::lock_guard lock(mutex_);
  begins("rmdir", name);
  const NodePtr node = find(name);
  if (!node) return;
  if (!node->names.empty()) fail("removing the folder", name, ENOTEMPTY);
  change(folder_of("removing the folder", name), {{last_of(name), nullptr}});
}

void FakeDisk::sync_folder(const std::string& name) {
  const std::lock_guard lock(mutex_);
  begins("fsync", name.empty() ? "." : name);
  const NodePtr node = find(name);
  if (!node || !node->is_folder) fail("fsync", name, ENOENT);
  node->synced_names = node->names;
  node->changes.clear();
}

void FakeDisk::sync_file(const std::string& name) {
  const std::lock_guard lock(mutex_);
  begins("fsync", name);
  const NodePtr node = find(name);
  if (!node || node->is_folder) fail("fsync", name, ENOENT);
  node->synced_bytes = node->bytes;
}

// Of bytes: what was synced; the rest of a longer file is there in its size, with or without its
// bytes. Of names: what was synced, with a part of the changes since, each whole.
FakeDisk::NodePtr FakeDisk::surviving(const Node& node, std::mt19937& random,
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

std::shared_ptr<FakeDisk> FakeDisk::after_end(uint32_t seed) const {
  const std::lock_guard lock(mutex_);
  std::mt19937 random(seed);
  std::map<const Node*, NodePtr> done;
  auto disk = std::make_shared<FakeDisk>();
  disk->root_ = surviving(*root_, random, done);
  disk->has_exchange_ = has_exchange_;
  return disk;
}

}  // namespace zeroth::checkpoint
