#include "trainer/report/environment.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

#include "base/machine/cpu.h"
#include "base/text/units.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

// Returns the text after "key ... : " in a file of /proc; empty if there is none.
std::string proc_field(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::string machine_text() {
  utsname names{};
  ::uname(&names);
  std::string processor = proc_field("/proc/cpuinfo", "model name");
  if (processor.empty()) processor = names.machine;
  const int64_t kib = std::atoll(proc_field("/proc/meminfo", "MemTotal").c_str());
  return fmt::format("{}: {}, {} cores, {}, {} {}", names.nodename, processor,
                     std::thread::hardware_concurrency(), format_bytes(kib * 1024), names.sysname,
                     names.release);
}

std::vector<std::string> process_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

// Returns the GPU models that the driver lists, including GPUs that this run does not use.
std::string gpus_text() {
  std::string text;
  std::error_code none;
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    const std::string model = proc_field(gpu.path() / "information", "Model");
    text += (text.empty() ? "" : ", ") + model;
  }
  return text;
}

bool is_plain(const std::string& argument) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  return !argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos;
}

}  // namespace

std::string command_text(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) {
    if (!text.empty()) text += ' ';
    if (is_plain(argument)) {
      text += argument;
      continue;
    }
    text += '\'';
    for (const char character : argument) {
      text += character == '\'' ? std::string("'\\''") : std::string(1, character);
    }
    text += '\'';
  }
  return text;
}

std::string ranks_text(const comm::DeviceMesh& mesh, int threads) {
  return fmt::format("{} on {}, {} each{}", mesh.world_size(), mesh.device().str(),
                     pluralize(threads, "thread"),
                     mesh.device().is_cpu() ? ", " + describe_cpu_isa() : "");
}

TitledLines environment_lines(const comm::DeviceMesh& mesh, int threads) {
  std::error_code gone;
  TitledLines lines = {{"Zeroth", ZEROTH_VERSION},
                       {"LibTorch", TORCH_VERSION},
                       {"machine", machine_text()},
                       {"ranks", ranks_text(mesh, threads)},
                       {"folder", fs::current_path(gone).string()},
                       {"command", command_text(process_arguments())}};
  if (mesh.device().is_cuda()) lines.insert(lines.begin() + 3, {"GPUs", gpus_text()});
  return lines;
}

}  // namespace zeroth::trainer
