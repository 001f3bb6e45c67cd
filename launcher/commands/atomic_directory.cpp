#include "launcher/commands/atomic_directory.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/machine/random_bytes.h"
#include "base/text/printable.h"

namespace zeroth::launcher {
namespace {

using checkpoint::DirectoryEntry;

constexpr std::string_view kMark = ".zeroth-tmp-";  // the same as finetune's
constexpr size_t kSuffixLetters = 6;

bool is_model_file(const std::string& name) {
  constexpr std::string_view kNames[] = {
      "config.json", "generation_config.json", "special_tokens_map.json", "vocab.json",
      "merges.txt",  "added_tokens.json"};
  return std::ranges::find(kNames, name) != std::end(kNames) || name.starts_with("tokenizer") ||
         name.starts_with("chat_template") || name.ends_with(".safetensors") ||
         name.ends_with(".safetensors.index.json") || name == "adapter_config.json" ||
         name == "adapter_quantization.json" ||
         (name.starts_with("pytorch_model") && name.find(".bin") != std::string::npos);
}

// Returns whether `name` is like "out.zeroth-tmp-Ab3dEf", for the target "out".
bool is_temporary(const std::string& name, const std::string& target) {
  const std::string begin = target + std::string(kMark);
  return name.size() == begin.size() + kSuffixLetters && name.starts_with(begin) &&
         std::all_of(name.end() - kSuffixLetters, name.end(),
                     [](unsigned char letter) { return std::isalnum(letter) != 0; });
}

}  // namespace

AtomicDirectory::AtomicDirectory(const std::filesystem::path& target, bool overwrite)
    : target_(resolve_links(target)), overwrite_(overwrite) {
  if (!target_.has_filename()) target_ = target_.parent_path();
  if (!target_.has_filename()) throw Error("{}: no folder can be created there", target_.string());
  file_system_ = checkpoint::PosixFileSystem::make(target_.parent_path());
  check_target();
  cleanup_leftovers();
  name_ = target_.filename().string() + std::string(kMark) + random_hex(kSuffixLetters / 2);
  file_system_->create_directory(name_);
  const std::filesystem::path path = file_system_->path() / name_;
  lock_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (lock_.get() >= 0) ::flock(lock_.get(), LOCK_EX | LOCK_NB);
}

AtomicDirectory::~AtomicDirectory() {
  if (name_.empty()) return;
  try {
    remove_tree(*file_system_, name_);
  } catch (const Error&) {
    return;  // the directory remains as a leftover
  }
}

std::string AtomicDirectory::file_path(const std::string& file) const {
  return checkpoint::join_path(name_, file);
}

void AtomicDirectory::check_target() const {
  const std::string name = target_.filename().string();
  const auto target = find_entry(*file_system_, "", name);
  if (!target) return;
  if (target->kind != DirectoryEntry::Kind::kDirectory)
    throw Error("{} is not a folder", target_.string());
  const auto inside = file_system_->list(name);
  if (inside.empty()) return;
  if (!overwrite_) {
    throw Error(
        "{} is not empty: choose another folder, or overwrite (--overwrite) to replace the model "
        "in it",
        target_.string());
  }
  const auto other = std::ranges::find_if_not(inside, [](const DirectoryEntry& entry) {
    return entry.kind == DirectoryEntry::Kind::kFile && is_model_file(entry.name);
  });
  if (other == inside.end()) return;
  throw Error("{} contains {}, which is not a model file and would be lost: choose another folder",
              target_.string(), shortened(other->name));
}

void AtomicDirectory::cleanup_leftovers() const {
  const auto siblings = Directory::find(file_system_->path());
  if (!siblings) return;
  for (const std::string& name : siblings->names()) {
    if (!is_temporary(name, target_.filename().string())) continue;
    const auto directory = siblings->open_subdirectory(name);
    if (!directory || !directory->is_owned_by_this_user()) continue;
    if (::flock(directory->get(), LOCK_EX | LOCK_NB) != 0) continue;  // in use by another process
    const auto names = directory->names();
    if (std::ranges::all_of(names, is_model_file)) siblings->remove(name, *directory);
  }
}

void AtomicDirectory::commit() {
  file_system_->sync_directory(name_);
  check_target();  // another process may have created the target meanwhile
  const std::string name = target_.filename().string();
  const bool replaces = exists(*file_system_, "", name) && !file_system_->list(name).empty();
  if (!replaces) {
    file_system_->rename(name_, name);  // also replaces an empty directory
    name_.clear();
  } else if (!file_system_->exchange(name_, name)) {
    throw Error("{} cannot be replaced in one step on this file system: remove it first",
                target_.string());
  }
  file_system_->sync_directory("");
  if (!name_.empty()) remove_tree(*file_system_, std::exchange(name_, ""));  // the old content
}

}  // namespace zeroth::launcher
