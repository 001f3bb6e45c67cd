#include "launcher/machine/find_program.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::find_program_test {
namespace {

void make_file(const std::filesystem::path& file, mode_t mode) {
  std::ofstream(file) << "#!/bin/sh\n";
  ::chmod(file.c_str(), mode);
}

int status_of(const std::string& name, const std::filesystem::path& own, const std::string& path) {
  try {
    find_program(name, own, path);
  } catch (const ProgramError& error) {
    return error.status();
  }
  return 0;
}

}  // namespace

TEST_CASE("a program is found by its path, beside zeroth, then along PATH") {
  const TempFolder own, first, second;
  make_file(own.path() / "both", 0755);
  make_file(first.path() / "both", 0755);
  make_file(second.path() / "late", 0755);
  const std::string path = first.path().string() + ":" + second.path().string();
  CHECK(find_program("both", own.path(), path) == own.path() / "both");
  CHECK(find_program("late", own.path(), path) == second.path() / "late");
  const std::string full = (first.path() / "both").string();
  CHECK(find_program(full, own.path(), "") == full);
}

TEST_CASE("what is not there is 127, what cannot run is 126") {
  const TempFolder own, other;
  make_file(own.path() / "plain", 0644);
  std::filesystem::create_directory(own.path() / "folder");
  CHECK(status_of("missing", own.path(), other.path()) == 127);
  CHECK(status_of(own.path() / "missing", own.path(), "") == 127);
  CHECK(status_of(own.path() / "plain", own.path(), "") == 126);
  CHECK(status_of(own.path() / "folder", own.path(), "") == 126);
  CHECK(status_of("plain", own.path(), "") == 126);
  CHECK(status_of("folder", own.path(), "") == 127);
}

TEST_CASE("a misspelled program is answered with the nearest one, by name and by path") {
  const TempFolder own, other;
  make_file(own.path() / "finetune", 0755);
  make_file(own.path() / "finetunes.txt", 0644);
  make_file(other.path() / "evaluate", 0755);
  const auto message = [&](const std::string& name) {
    return message_of<ProgramError>([&] { find_program(name, own.path(), other.path()); });
  };
  CHECK(message("fintune").starts_with(
      "program 'fintune' was not found; did you mean finetune?\n  looked beside zeroth in "));
  CHECK(message("evalute").find("did you mean evaluate?") != std::string::npos);
  CHECK(message("something_else").find("did you mean") == std::string::npos);
  const std::string path = (own.path() / "finetun").string();
  CHECK(message(path) == path + " does not exist; did you mean finetune?");
}

TEST_CASE("a program along PATH is suggested only where it is one slip away") {
  const TempFolder own, other;
  for (const char* name : {"sreport", "dsh", "sh", "xz", "finetune-old", "python3"})
    make_file(other.path() / name, 0755);
  const auto message = [&](const std::string& name) {
    return message_of<ProgramError>([&] { find_program(name, own.path(), other.path()); });
  };
  for (const char* name : {"xy", "sreprots", "dsx", "pithon-3"})
    CHECK(message(name).find("did you mean") == std::string::npos);
  CHECK(message("reprot").find("did you mean report?") != std::string::npos);
  CHECK(message("pyhton3").find("did you mean python3?") != std::string::npos);
}

TEST_CASE("an executable along PATH wins over a plain file before it") {
  const TempFolder own, other;
  make_file(own.path() / "prog", 0644);
  make_file(other.path() / "prog", 0755);
  CHECK(find_program("prog", own.path(), other.path()) == other.path() / "prog");
}

}  // namespace zeroth::launcher::find_program_test
