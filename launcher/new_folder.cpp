#include "launcher/new_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <random>
#include <string_view>

#include "base/error.h"
#include "base/folder.h"
#include "base/printable.h"

namespace zeroth::launcher {
namespace {

using checkpoint::Entry;

constexpr std::string_view kMark = ".zeroth-tmp-";  // as finetune's own
constexpr size_t kRandom = 6;

std::string random_letters() {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::random_device random;
  std::string letters;
  for (size_t i = 0; i < kRandom; ++i) letters += kLetters[random() % kLetters.size()];
  return letters;
}

bool is_model_file(const std::string& name) {
  constexpr std::array<std::string_view, 6> kNames = {
      "config.json", "generation_config.json", "special_tokens_map.json", "vocab.json",
      "merges.txt",  "added_tokens.json"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         name.starts_with("tokenizer") || name.starts_with("chat_template") ||
         name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
         (name.starts_with("pytorch_model") && name.find(".bin") != std::string::npos);
}

bool is_of_model(const Entry& entry) {
  return entry.kind == Entry::Kind::kFile && is_model_file(entry.name);
}

// Of "out.zeroth-tmp-Ab3dEf", for "out".
bool is_temporary(const std::string& name, const std::string& target) {
  const std::string begin = target + std::string(kMark);
  return name.size() == begin.size() + kRandom && name.starts_with(begin) &&
         std::all_of(name.end() - kRandom, name.end(),
                     [](unsigned char letter) { return std::isalnum(letter) != 0; });
}

}  // namespace

NewFolder::NewFolder(const std::filesystem::path& target, bool overwrite)
    : target_(resolve_links(target)), overwrite_(overwrite) {
  if (!target_.has_filename()) target_ = target_.parent_path();
  if (!target_.has_filename()) throw Error("{}: no folder can stand there", target_.string());
  disk_ = checkpoint::RealDisk::make(target_.parent_path());
  check_target();
  clear_leftovers();
  const std::string name = target_.filename().string() + std::string(kMark) + random_letters();
  disk_->make_folder(name);
  name_ = name;
  const std::filesystem::path path = disk_->path() / name_;
  lock_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (lock_.get() >= 0) ::flock(lock_.get(), LOCK_EX | LOCK_NB);
}

NewFolder::~NewFolder() {
  if (name_.empty()) return;
  try {
    remove_tree(*disk_, name_);
  } catch (const Error&) {
    return;  // what stays is a leftover
  }
}

std::string NewFolder::name_of(const std::string& file) const {
  return checkpoint::joined(name_, file);
}

void NewFolder::check_target() const {
  const std::string name = target_.filename().string();
  if (!holds(*disk_, "", name)) return;
  const auto around = disk_->list("");
  const bool is_folder = std::any_of(around.begin(), around.end(), [&](const Entry& entry) {
    return entry.name == name && entry.kind == Entry::Kind::kFolder;
  });
  if (!is_folder) throw Error("{} is not a folder", target_.string());
  const auto inside = disk_->list(name);
  if (inside.empty()) return;
  if (!overwrite_) {
    throw Error(
        "{} is not empty: choose another folder, or overwrite (--overwrite) to replace the model "
        "in it",
        target_.string());
  }
  const auto other = std::find_if_not(inside.begin(), inside.end(), is_of_model);
  if (other == inside.end()) return;
  throw Error("{} holds {}, which is no file of a model and would be lost: choose another folder",
              target_.string(), shortened(other->name));
}

void NewFolder::clear_leftovers() const {
  const auto around = Folder::find(disk_->path());
  if (!around) return;
  for (const std::string& name : around->names()) {
    if (!is_temporary(name, target_.filename().string())) continue;
    const auto folder = around->inside(name);
    if (!folder || !folder->is_ours()) continue;
    if (::flock(folder->get(), LOCK_EX | LOCK_NB) != 0) continue;  // somebody writes it
    const auto names = folder->names();
    if (std::all_of(names.begin(), names.end(), is_model_file)) around->remove(name, *folder);
  }
}

void NewFolder::commit() {
  disk_->sync_folder(name_);
  check_target();  // somebody may have put something there meanwhile
  const std::string name = target_.filename().string();
  const bool replaces = holds(*disk_, "", name) && !disk_->list(name).empty();
  if (!replaces) {
    disk_->rename(name_, name);  // also onto an empty folder
    name_.clear();
  } else if (!disk_->exchange(name_, name)) {
    throw Error("{} cannot be replaced in one step on this file system: remove it first",
                target_.string());
  }
  disk_->sync_folder("");
  if (!name_.empty()) remove_tree(*disk_, std::exchange(name_, ""));  // the old one
}

}  // namespace zeroth::launcher
