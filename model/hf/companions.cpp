#include "model/hf/companions.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <system_error>
#include <utility>

#include "base/file_descriptor.h"
#include "model/hf/model_files.h"
#include "model/hf/temporary_folder.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

// An open file, and what may be said of it.
struct Companion {
  fs::path name;  // from the source on
  FileDescriptor file;
  std::string left_out;  // why, or empty
};
using Visit = std::function<void(const Companion&)>;

bool lies_in(const fs::path& folder, const fs::path& file) {
  const auto [of_folder, of_file] =
      std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return of_folder == folder.end() && of_file != file.end();
}

// `source` has no links.
bool belongs_to(const fs::path& source, const fs::path& file) {
  if (lies_in(source, file)) return true;
  const fs::path entry = source.parent_path().parent_path();
  return source.parent_path().filename() == "snapshots" &&
         entry.filename().string().starts_with("models--") && lies_in(entry / "blobs", file);
}

// Opened first and looked at then, so that it is the file that was looked at.
Companion open_companion(const fs::path& source, const fs::path& name) {
  Companion found{
      name,
      FileDescriptor(::open((source / name).c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)),
      ""};
  if (found.file.get() < 0) {
    found.left_out = std::generic_category().message(errno);
    return found;
  }
  struct stat status {};
  ::fstat(found.file.get(), &status);
  const fs::path leads_to = fs::read_symlink(path_of(found.file.get()));
  if (!belongs_to(source, leads_to)) {
    found.left_out =
        fmt::format("it leads to {}, outside of the model's folder", leads_to.string());
  } else if (!S_ISREG(status.st_mode)) {
    found.left_out = "it is no file";
  }
  return found;
}

void visit(const fs::path& source, const fs::path& name, const Visit& each) {
  if (!fs::is_directory(fs::symlink_status(source / name))) {
    each(open_companion(source, name));
    return;
  }
  for (const auto& entry : fs::directory_iterator(source / name)) {
    visit(source, name / entry.path().filename(), each);
  }
}

void visit_all(const fs::path& source, const Visit& each) {
  naming_errors([&] {
    const fs::path whole = fs::canonical(source);
    for (const auto& entry : fs::directory_iterator(whole)) {
      const fs::path name = entry.path().filename();
      if (is_companion(name.string())) visit(whole, name, each);
    }
  });
}

}  // namespace

void copy_companions(const fs::path& source, const fs::path& output) {
  visit_all(source, [&](const Companion& companion) {
    if (!companion.left_out.empty()) return;
    const fs::path to = output / companion.name;
    std::error_code failed;
    fs::create_directories(to.parent_path(), failed);
    // Made first, so that it has the mode of a new file: the model's folder may be read-only, or
    // another user's.
    if (!failed && !std::ofstream(to)) failed = std::error_code(errno, std::generic_category());
    if (!failed) {
      const fs::perms mode = fs::status(to).permissions();
      fs::copy_file(path_of(companion.file.get()), to, fs::copy_options::overwrite_existing,
                    failed);
      if (!failed) fs::permissions(to, mode, failed);
    }
    if (failed) {
      throw_write_error(fmt::format("{} cannot be copied to {}", (source / companion.name).string(),
                                    output.string()),
                        failed.value(), output);
    }
  });
}

std::vector<std::string> companions_left_out(const fs::path& source) {
  std::vector<std::string> lines;
  visit_all(source, [&](const Companion& companion) {
    if (companion.left_out.empty()) return;
    lines.push_back(fmt::format("{} is not copied to the output: {}",
                                (source / companion.name).string(), companion.left_out));
  });
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace zeroth::model
