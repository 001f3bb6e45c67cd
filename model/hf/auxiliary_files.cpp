#include "model/hf/auxiliary_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <system_error>
#include <utility>

#include "base/machine/file_descriptor.h"
#include "model/hf/model_directory.h"
#include "model/hf/temporary_directory.h"

namespace zeroth::model {
namespace {

namespace fs = std::filesystem;

// An AuxiliaryFile is an open file, and the reason not to copy it, if there is one.
struct AuxiliaryFile {
  fs::path name;  // relative to the source
  FileDescriptor file;
  std::string skip_reason;  // empty if the file is copied
};
using FileVisitor = std::function<void(const AuxiliaryFile&)>;

bool is_inside(const fs::path& directory, const fs::path& file) {
  const auto [directory_end, file_rest] =
      std::mismatch(directory.begin(), directory.end(), file.begin(), file.end());
  return directory_end == directory.end() && file_rest != file.end();
}

// Returns whether `file` is part of the model in `source`, which contains no symbolic links.
bool belongs_to(const fs::path& source, const fs::path& file) {
  if (is_inside(source, file)) return true;
  const fs::path entry = source.parent_path().parent_path();
  return source.parent_path().filename() == "snapshots" &&
         entry.filename().string().starts_with("models--") && is_inside(entry / "blobs", file);
}

// Opens the file first and checks it then, so that the checked file is the one that is copied.
AuxiliaryFile open_auxiliary_file(const fs::path& source, const fs::path& name) {
  AuxiliaryFile found{
      name,
      FileDescriptor(::open((source / name).c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)),
      ""};
  if (found.file.get() < 0) {
    found.skip_reason = std::generic_category().message(errno);
    return found;
  }
  struct stat status {};
  ::fstat(found.file.get(), &status);
  const fs::path leads_to = fs::read_symlink(proc_fd_path(found.file.get()));
  if (!belongs_to(source, leads_to)) {
    found.skip_reason =
        fmt::format("it links to {}, outside of the model's folder", leads_to.string());
  } else if (!S_ISREG(status.st_mode)) {
    found.skip_reason = "it is not a file";
  }
  return found;
}

void visit(const fs::path& source, const fs::path& name, const FileVisitor& each) {
  if (!fs::is_directory(fs::symlink_status(source / name))) {
    each(open_auxiliary_file(source, name));
    return;
  }
  for (const auto& entry : fs::directory_iterator(source / name)) {
    visit(source, name / entry.path().filename(), each);
  }
}

void visit_all(const fs::path& source, const FileVisitor& each) {
  with_path_errors([&] {
    const fs::path canonical_source = fs::canonical(source);
    for (const auto& entry : fs::directory_iterator(canonical_source)) {
      const fs::path name = entry.path().filename();
      if (is_auxiliary_file(name.string())) visit(canonical_source, name, each);
    }
  });
}

}  // namespace

void copy_auxiliary_files(const fs::path& source, const fs::path& output) {
  visit_all(source, [&](const AuxiliaryFile& auxiliary) {
    if (!auxiliary.skip_reason.empty()) return;
    const fs::path to = output / auxiliary.name;
    std::error_code failed;
    fs::create_directories(to.parent_path(), failed);
    // Create the file first, so that it has the mode of a new file: the model's directory may be
    // read-only, or another user's.
    if (!failed && !std::ofstream(to)) failed = std::error_code(errno, std::generic_category());
    if (!failed) {
      const fs::perms mode = fs::status(to).permissions();
      fs::copy_file(proc_fd_path(auxiliary.file.get()), to, fs::copy_options::overwrite_existing,
                    failed);
      if (!failed) fs::permissions(to, mode, failed);
    }
    if (failed) {
      throw_write_error(fmt::format("{} cannot be copied to {}", (source / auxiliary.name).string(),
                                    output.string()),
                        failed.value(), output);
    }
  });
}

std::vector<std::string> skipped_auxiliary_files(const fs::path& source) {
  std::vector<std::string> lines;
  visit_all(source, [&](const AuxiliaryFile& auxiliary) {
    if (auxiliary.skip_reason.empty()) return;
    lines.push_back(fmt::format("{} is not copied to the output: {}",
                                (source / auxiliary.name).string(), auxiliary.skip_reason));
  });
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace zeroth::model
