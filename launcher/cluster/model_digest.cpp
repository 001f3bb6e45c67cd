#include "launcher/cluster/model_digest.h"

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/sha256.h"
#include "base/text/printable.h"
#include "launcher/run/newest_checkpoint.h"

namespace zeroth::launcher {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;  // an index of a million tensors has 100 MB

bool is_model_definition(const std::string& name) {
  return name == "config.json" || name.ends_with(".index.json");
}

}  // namespace

std::string model_argument(const std::vector<std::string>& command) {
  return find_argument(command, {"--model", "--model_name_or_path"});
}

std::string model_digest(const std::string& directory) {
  std::error_code none;
  if (directory.empty() || !std::filesystem::is_directory(directory, none)) return "";
  std::set<std::string> names;
  for (std::filesystem::directory_iterator entry(directory, none), end; !none && entry != end;
       entry.increment(none))
    if (is_model_definition(entry->path().filename().string()))
      names.insert(entry->path().filename().string());
  if (none) throw Error("the model's folder {}: {}", shortened(directory, 1000), none.message());
  Sha256 digest;
  for (const std::string& name : names) {
    digest.add(name + '\0');
    digest.add(digest_bytes(
        Sha256::of(read_file(std::filesystem::path(directory) / name, kMaxFileBytes))));
  }
  return to_hex(digest.finish());
}

}  // namespace zeroth::launcher
