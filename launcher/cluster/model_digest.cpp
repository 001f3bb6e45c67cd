#include "launcher/cluster/model_digest.h"

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "base/regular_file.h"
#include "base/sha256.h"
#include "launcher/run/committed.h"

namespace zeroth::launcher {
namespace {

constexpr size_t kMostBytes = size_t{256} << 20;  // an index of a million tensors has 100 MB

bool says_what_it_is(const std::string& name) {
  return name == "config.json" || name.ends_with(".index.json");
}

}  // namespace

std::string model_argument(const std::vector<std::string>& command) {
  return argument_of(command, {"--model", "--model_name_or_path"});
}

std::string model_digest(const std::string& folder) {
  std::error_code none;
  if (folder.empty() || !std::filesystem::is_directory(folder, none)) return "";
  std::set<std::string> names;
  for (std::filesystem::directory_iterator entry(folder, none), end; !none && entry != end;
       entry.increment(none))
    if (says_what_it_is(entry->path().filename().string()))
      names.insert(entry->path().filename().string());
  if (none) throw Error("the model's folder {}: {}", shortened(folder, 1000), none.message());
  Sha256 digest;
  for (const std::string& name : names) {
    digest.add(name + '\0');
    digest.add(bytes_of(Sha256::of(read_file(std::filesystem::path(folder) / name, kMostBytes))));
  }
  return hex_of(digest.finish());
}

}  // namespace zeroth::launcher
