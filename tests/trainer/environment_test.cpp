#include "trainer/report/monitoring.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "base/machine/cpu.h"

namespace zeroth::trainer::environment_test {

TEST_CASE("a command is told as a shell would take it") {
  CHECK(command_text({"finetune", "--model", "a b", "--separator", "it's", ""}) ==
        "finetune --model 'a b' --separator 'it'\\''s' ''");
}

TEST_CASE("the environment names versions, machine, ranks, folder and command") {
  const comm::DeviceMesh mesh(torch::kCPU, comm::make_solo_group());
  const TitledLines lines = environment_lines(mesh, 2);
  std::vector<std::string> titles;
  for (const auto& [title, text] : lines) {
    titles.push_back(title);
    CHECK_MESSAGE(!text.empty(), title);
  }
  CHECK(titles ==
        std::vector<std::string>{"Zeroth", "LibTorch", "machine", "ranks", "folder", "command"});
  CHECK(lines[3].second == "1 on cpu, 2 threads each, " + describe_cpu_isa());
  CHECK(ranks_text(mesh, 1) == "1 on cpu, 1 thread each, " + describe_cpu_isa());
  CHECK(lines[4].second == std::filesystem::current_path().string());
  CHECK(lines[5].second.find("trainer_test") != std::string::npos);
}

}  // namespace zeroth::trainer::environment_test
