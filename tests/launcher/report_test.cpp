#include "launcher/commands/report.h"

#include <doctest/doctest.h>

#include "tests/launcher/launched_process.h"

namespace zeroth::launcher::report_test {
namespace {

std::string value_of(const std::vector<ReportSection>& sections, const std::string& title,
                     const std::string& name) {
  for (const ReportSection& section : sections)
    for (const auto& line : section.lines)
      if (section.title == title && line.first == name) return line.second;
  return "no such line";
}

bool has_warning(const std::vector<ReportSection>& sections, const std::string& part) {
  if (sections.back().title != "Warnings") return false;
  for (const auto& line : sections.back().lines)
    if (line.second.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST_CASE("a report has a value for all that ds_report tells, and more") {
  const auto sections = make_report(ZEROTH_BIN_DIR, {"cpu", {}, "/usr/bin"});
  for (const auto& [title, name] :
       std::vector<std::pair<const char*, const char*>>{{"Versions", "Zeroth"},
                                                        {"Versions", "LibTorch"},
                                                        {"Versions", "CUDA toolkit of the build"},
                                                        {"Versions", "NCCL of the build"},
                                                        {"Versions", "system"},
                                                        {"Built in", "GPU ranks"},
                                                        {"Processor", "sockets, cores, threads"},
                                                        {"Processor", "instruction set in use"},
                                                        {"Processor", "instructions"},
                                                        {"Memory", "machine"},
                                                        {"Memory", "limit (cgroup)"},
                                                        {"Memory", "/dev/shm"},
                                                        {"Memory", "limit of locked memory"},
                                                        {"GPUs", "driver"},
                                                        {"Files", "io_uring"},
                                                        {"Files", "working folder"},
                                                        {"Programs", "zeroth"},
                                                        {"Programs", "finetune"}}) {
    CAPTURE(name);
    const std::string value = value_of(sections, title, name);
    CHECK_FALSE(value.empty());
    CHECK(value != "no such line");
    CHECK(value != "unknown");
  }
  CHECK(value_of(sections, "Programs", "zeroth") == ZEROTH_BIN_DIR "/zeroth");
  CHECK(value_of(sections, "Programs", "default device") == "cpu");
}

TEST_CASE("what will fail a run is warned of at the end") {
  const TempFolder empty;
  const auto sections = make_report(empty.path(), {"cuda", std::string(), empty.path().string()});
  CHECK(value_of(sections, "Programs", "finetune") == "not found");
  CHECK(has_warning(sections, "program 'finetune' was not found"));
  CHECK(has_warning(sections, "DS_ACCELERATOR is cuda, but no GPU is visible"));
}

TEST_CASE("a small /dev/shm is warned of where NCCL connects several GPUs, and only there") {
  const SpaceInfo small{.total_bytes = 64 << 20, .free_bytes = 64 << 20, .type = "tmpfs"};
  const SpaceInfo large{.total_bytes = 1 << 30, .free_bytes = 0, .type = "tmpfs"};
  CHECK(shared_memory_warning(0, small).empty());
  CHECK(shared_memory_warning(1, small).empty());
  CHECK(shared_memory_warning(2, large).empty());
  CHECK(shared_memory_warning(2, small).starts_with("/dev/shm has only 64.0 MiB: NCCL "));
}

TEST_CASE("names and values stand in two columns under their titles") {
  CHECK(format_report({{"One", {{"a", "1"}, {"long", "2"}}}, {"Two", {{"b", "3"}}}}) ==
        "One\n  a     1\n  long  2\n\nTwo\n  b  3\n");
}

}  // namespace zeroth::launcher::report_test
